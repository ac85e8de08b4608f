// Shows the state of the session: paints the canvas, and writes the texts of the page.

import { STATES } from "./palette.js";
import { GREY } from "./causes.js";
import { LENS_RADIUS_PX } from "./geometry.js";
import { announce, showBanners, showNotices } from "./notices.js";
import { bannersOf } from "./panels.js";
import { boxOf, followedOf, speedOf, steeredOf } from "./targets.js";
import { withoutNumbers } from "./session.js";
import { BEHIND_S } from "./view.js";
import { confidenceOf, confidenceShown, lineOf, numbersOf } from "./texts.js";

// Only after this time of small pictures the page reports a slow link: the first pictures are always small.
const SMALL_MS = 1000;
// Side of the square at the top right that the countdown's ring occupies.
const RING_PX = 66;
// Panels at most this far from a target's box make room for it.
const NEAR_PX = 4;

const $ = (id) => document.getElementById(id);

/** Set the text of an element, only if it differs: every write makes the browser compute the layout anew. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show a toggle button as pressed or not. */
export function press(button, isOn) {
  button.setAttribute("aria-pressed", String(isOn));
}

export class Painting {
  // The texts on the target and on the gimbal as shown last, without numbers.
  #shownState = "";
  #shownGimbal = "";

  /** `session`: a `Session`; `view`: a `View`; `plots`: a `Plots`; `list`: a `TargetList`. */
  constructor({ session, view, plots, list }) {
    Object.assign(this, { session, view, plots, list });
  }

  /** Fit the picture between the page's bars at top and bottom. Must be called when the size of one of them changes. */
  layOut() {
    const bottoms = ["footer", "#plots"].map((name) => document.querySelector(name)).filter((one) => !one.hidden);
    const height = $("view").clientHeight, bottom = Math.max(...bottoms.map((one) => height - one.getBoundingClientRect().top));
    this.view.viewport.setInsets(document.querySelector("header").getBoundingClientRect().bottom, bottom);
  }

  /** Paint the picture and all texts. All show the same moment, so that a badge never contradicts a banner. */
  frame(nowMs) {
    this.session.findCause(nowMs);
    const { session, view } = this, { drawing, frames, tracks, viewport } = session;
    const frame = drawing.frame ?? frames.shown, track = frame ? tracks.of(frame.stamp) : undefined;
    const { byKeys } = session.page;
    const steered = steeredOf(track), isFollowed = steered && ["ACQUIRING", "TRACKING", "COASTING"].includes(steered.state);
    if (!drawing.isFrozen && isFollowed && boxOf(steered)) viewport.keepInView(boxOf(steered));
    view.paint({
      frame,
      track,
      drawing,
      lensAt: session.lensAt,
      isGrey: session.isGrey("box"),
      staleS: this.#staleS(nowMs),
      gimbal: session.page.steering.isThere ? session.page.steering.angles ?? {} : null,
      likely: session.likely(nowMs)?.box ?? null,
      proposedS: drawing.mode === "proposed" ? drawing.ageS(nowMs / 1000) : null,
      cursor: byKeys && document.activeElement === view.canvas && ["live", "frozen", "corner"].includes(drawing.mode) ? drawing.cursor : null,
      panels: this.#panels(),
    });
    this.panels(nowMs);
    const { dataset } = view.canvas, { origin, scale } = viewport;
    dataset.stamp = frame ? frame.stamp.toString() : "";
    dataset.width = frame?.bitmap.width ?? "";
    dataset.lens = view.lens ? `${view.lens.x} ${view.lens.y}` : "";
    dataset.mode = drawing.mode;
    dataset.zoom = viewport.zoom.toFixed(2);
    dataset.place = `${origin.x} ${origin.y} ${scale}`;
    frames.release(frame?.bitmap);
  }

  /** Age of an outdated picture, s; null if the picture is up to date, or if the user has frozen it. */
  #staleS(nowMs) {
    const { session } = this, { cause } = session;
    const isStale = cause && GREY[cause.id].includes("age") && !session.drawing.isFrozen && !session.link.over;
    return isStale ? session.pictureS(nowMs) : null;
  }

  /** Update the root cause, and all texts, banners and notices. */
  panels(nowMs) {
    const { session } = this;
    session.findCause(nowMs);
    session.page.steering.know({ hasLink: !session.link.isSilent(nowMs), isGrey: session.isGrey("gimbal"), mayEnable: session.mayCommand });
    document.body.dataset.grey = session.cause ? GREY[session.cause.id].join(" ") : "";
    this.#state(nowMs);
    showBanners(this.#banners(nowMs), () => session.takeOver());
    // While the user drags, only one notice is shown: more would cover the drawing.
    showNotices(session.notices.shown(nowMs).slice(0, session.drawing.mode === "dragging" ? 1 : undefined));
    this.#countdown();
    // While the user draws, the list is hidden: it would cover the drawing.
    const hasList = !session.menu && ["live", "frozen"].includes(session.drawing.mode);
    this.list.show(hasList ? followedOf(session.latest) : [], session.isGrey("badge"));
    this.#choice();
    this.#makeRoom();
    this.#hint();
    $("entry").hidden = !/token/.test(session.link.refused);
  }

  /**
   * Update the parts of the page that need not change with every picture: buttons, numbers and curves. Returns whether the
   * picture must be painted again, because the root cause of a fault has changed, or because the picture's age is shown.
   */
  slow(nowMs) {
    const { session } = this, before = session.cause?.id, isStale = this.#staleS(nowMs) !== null;
    this.panels(nowMs);
    const isAsked = session.isClearAsked(nowMs);
    write($("clear"), isAsked ? "Clear?" : "Clear");
    $("clear").classList.toggle("armed", isAsked);
    this.curves();
    const { following } = session.page;
    following.know({ hasLink: !session.link.isSilent(nowMs), mayEnable: session.mayCommand });
    following.paint(nowMs);
    if (!$("drawer").hidden) this.#numbers(nowMs);
    return before !== session.cause?.id || isStale;
  }

  curves() {
    if (!$("plots").hidden) this.plots.paint(this.session.history.points, this.session.isGrey("presence"));
  }

  #state(nowMs) {
    const { session } = this, track = session.latest, target = steeredOf(track), state = session.stateOf(track);
    const badge = $("state");
    if (badge.dataset.state !== state) {
      badge.dataset.state = state;
      badge.textContent = state;
      badge.style.background = STATES[state]?.colour ?? "";
      if (STATES[state]) announce(state + (target?.reason ? `: ${target.reason}` : ""));
    }
    const shownState = state + withoutNumbers(target?.reason ?? "");
    if (shownState !== this.#shownState) session.notices.retire("reason");
    this.#shownState = shownState;
    const gimbal = withoutNumbers($("steering-text").textContent);
    if (gimbal !== this.#shownGimbal) session.notices.retire("gimbal reason");
    this.#shownGimbal = gimbal;
    const unseenS = session.unseenS(target, nowMs);
    this.#line(track, target, unseenS);
    this.#confidence(target);
    this.#ages(nowMs, track, target);
    if (!session.link.over) session.alarm.see(state, target, unseenS, nowMs);
    const { cause, alarm } = session;
    document.title = `${cause ? cause.title : alarm.isLost && unseenS !== null ? `LOST ${Math.floor(unseenS)} s` : state} · Target tracker`;
  }

  #line(track, target, unseenS) {
    const { session } = this;
    let line = "";
    if (session.isGrey("presence")) line = target ? `was ${target.state}` : "";
    else if (target && target.state !== "IDLE") line = lineOf(target, unseenS);
    else if (!target && followedOf(track).length) line = "no target is steered; tap one";
    write($("detail").firstElementChild, line);
  }

  /** The text of the top bar's line in full, with the tracker's reason. */
  get reason() {
    const line = $("detail").textContent, reason = steeredOf(this.session.latest)?.reason ?? "";
    return !reason || line.includes(reason) ? line : `${line}: ${reason}`;
  }

  #confidence(target) {
    const isKnown = target && ["ACQUIRING", "TRACKING"].includes(target.state) && !this.session.isGrey("presence");
    const confidence = isKnown ? confidenceOf(target) : null, element = $("confidence");
    element.hidden = confidence === null;
    if (confidence === null) return;
    const { bars, label } = confidenceShown(confidence);
    element.dataset.bars = bars;
    element.setAttribute("aria-label", `the tracker is ${label}`);
  }

  #ages(nowMs, track, target) {
    const { session } = this, { frames: { shown }, progress } = session;
    const ageMs = this.#ageMs(nowMs);
    const age = ageMs >= 1000 ? `${(ageMs / 1000).toFixed(1)}\u00a0s` : `${Math.round(ageMs)}\u00a0ms`;
    write($("age"), !shown ? "" : progress ? progressText(progress) : ageMs === null ? "delay unknown" : `delay ${age}`);
    const behindS = this.#behindS(track, target);
    write($("behind"), behindS >= BEHIND_S && !session.isGrey("box") ? `tracker ${behindS.toFixed(1)} s behind` : "");
  }

  #ageMs(nowMs) {
    const { session } = this, { shown } = session.frames;
    return shown ? session.link.clock.ageMs(shown.stamp, session.isGrey("age") ? nowMs : shown.arrivedMs) : null;
  }

  /** By how much the tracker's answer for the target is older than the picture, s; the label of the box shows the same. */
  #behindS(track, target) {
    return ((this.session.frames.shown && track?.behindS) || 0) + (target?.behind_s ?? 0);
  }

  #numbers(nowMs) {
    const { session } = this, track = session.latest, target = steeredOf(track), { shown } = session.frames;
    const rows = numbersOf({ target, track, size: shown, ageMs: this.#ageMs(nowMs), behindS: this.#behindS(track, target) });
    const list = $("values");
    if (list.children.length !== 2 * rows.length) list.replaceChildren(...rows.flatMap(() => ["dt", "dd"].map((tag) => document.createElement(tag))));
    rows.flat().forEach((text, i) => write(list.children[i], text));
  }

  #banners(nowMs) {
    const { session } = this, { frames, drawing, link, holder, page: { steering } } = session;
    const isLongSmall = frames.smallMs !== null && nowMs - frames.smallMs > SMALL_MS;
    const isHeld = drawing.isFrozen && !session.countdown;
    const banners = bannersOf({
      over: link.over,
      cause: session.cause,
      gimbal: steering.fault(nowMs),
      control: link.isSilent(nowMs) ? null : steering.lostControl,
      isSteered: steering.isOn,
      alarm: session.isGrey("badge") ? null : session.alarm.banner(nowMs),
      held: !isHeld ? "" : drawing.mode === "sent" ? "waiting for the answer" : "the picture is held",
      isSmall: isLongSmall && !session.question && (drawing.frame ?? frames.shown).isSmall,
      holder: session.hello && !session.mayCommand ? holder : null,
    });
    // The banner "alarm" reports the loss of a target, for which `Alarm.see` plays other tones.
    session.alarm.ring(Object.keys(banners).filter((id) => id !== "alarm" && banners[id].isAlarm));
    return banners;
  }

  #choice() {
    const { session } = this, { drawing, viewport } = session;
    const choice = session.question;
    $("choice").hidden = !choice;
    if (!choice) return;
    const drawn = session.menu ? null : drawing.shownBox ?? session.likely(performance.now())?.box ?? { ...drawing.mark, height: 0 };
    // The question is placed above or below the target's drawing and label, on the side with more room.
    const { insets, view } = viewport;
    const above = drawn && viewport.toView(drawn).y - 80 - insets.top;
    const below = drawn && view.height - insets.bottom - viewport.toView({ x: 0, y: drawn.y + drawn.height }).y;
    $("choice").classList.toggle("high", above > below);
    if ($("choice-text").textContent !== choice.text) announce($("choice-text").textContent = choice.text);
    write($("choice-send"), choice.send ?? "");
    for (const what of ["point", "send", "add", "remove"]) $(`choice-${what}`).hidden = !choice[what];
  }

  /** Show the ring with the time left for a selection. It is at the top right, and moves away if the user draws there or the
   * lens is there. */
  #countdown() {
    const { session, view } = this, { drawing, viewport, countdown: left } = session;
    $("left").hidden = !left;
    if (!left) return;
    const { top } = viewport.insets;
    const isNear = ({ x, y }, reach) => x > viewport.view.width - RING_PX - reach && y < top + RING_PX + reach;
    const isDrawnThere = drawing.mode === "dragging" && isNear(viewport.toView(drawing.cursor), 44);
    $("left").classList.toggle("aside", isDrawnThere || (view.lens !== null && isNear(view.lens, LENS_RADIUS_PX)));
    $("left").classList.toggle("soon", left.seconds < 2);
    $("left").style.setProperty("--share", left.share);
    write($("left-s"), `${Math.ceil(left.seconds)} s`);
  }

  #hint() {
    const { session } = this;
    const isIdle = session.stateOf(session.latest) === "IDLE" && !followedOf(session.latest).length && session.mayCommand && !session.link.over;
    const isHeldToDraw = session.drawing.mode === "frozen" && session.drawing.byHand && session.mayCommand;
    const isLost = session.stateOf(session.latest) === "LOST" && session.mayCommand && !session.link.over && !session.question;
    $("hint").hidden = !(((isIdle || isLost) && session.drawing.mode === "live") || isHeldToDraw);
    const hint = session.page.byKeys ? "Arrows to the target, then Enter" : "Draw a box around the target, or tap it";
    write($("hint"), isLost ? `${hint}: tracking starts anew` : hint);
    press($("freeze"), session.drawing.isFrozen);
    write($("freeze"), session.drawing.isFrozen ? "Live" : "Select");
  }

  /** Make room for drawing, lens and target: banners move to the bottom, panels over the target become transparent. */
  #makeRoom() {
    const { session } = this, { drawing, viewport } = session;
    const banners = $("banners"), { insets, view } = viewport;
    const y = drawing.mode === "dragging" ? viewport.toView(drawing.cursor).y : Infinity;
    const room = banners.offsetHeight + 24;
    banners.classList.toggle("low", y < insets.top + room || (session.lensAt !== null && y < view.height - insets.bottom - room));
    const box = drawing.isFrozen ? null : boxOf(steeredOf(session.latest) ?? {});
    const near = box && this.#around(box);
    for (const one of document.querySelectorAll(PANELS)) {
      const at = near && one.getBoundingClientRect();
      one.classList.toggle("see-through", Boolean(near && at.width && at.left < near.right && near.left < at.right && at.top < near.bottom && near.top < at.bottom));
    }
  }

  /** The rectangle {left, top, right, bottom} of an image box in the view, larger by NEAR_PX on each side. */
  #around(box) {
    const { viewport } = this.session, { scale } = viewport, { x, y } = viewport.toView(box);
    return { left: x - NEAR_PX, top: y - NEAR_PX, right: x + box.width * scale + NEAR_PX, bottom: y + box.height * scale + NEAR_PX };
  }

  /** The rectangles of the visible panels, px of the view. A label must not lie below them. */
  #panels() {
    const places = [...document.querySelectorAll(PANELS)].map((one) => one.getBoundingClientRect());
    return places.filter(({ width }) => width).map(({ x, y, width, height }) => ({ x, y, width, height }));
  }
}

const PANELS = "header > :not(h1), #banners > p, #targets, #corner, #choice, #hint, #notices > p, #plots, #thumb > button, #steering > button";

/** The position in a video as text: time, number of the picture, number of pictures. */
function progressText({ frame, count, video_s }) {
  const time = `${Math.floor(video_s / 60)}:${(video_s % 60).toFixed(1).padStart(4, "0")}`;
  return `${time} · ${frame + 1} of ${count}`;
}
