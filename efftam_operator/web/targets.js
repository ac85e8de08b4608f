// The followed targets: which one is steered, which one lies at a point, and the list of them on the page.

import { TARGETS } from "./palette.js";
import { clipBox, grown, isInside } from "./geometry.js";

/** Values in place of a target's id in a command: the steered target, and a new target. */
export const STEERED = 0, NEXT_FREE = 255;

/** The colour of a target's box and list entry while there are several targets. */
export const colourOf = ({ id }) => TARGETS[id % TARGETS.length];

/** The steered target's entry in a track; undefined if there is none. */
export const steeredOf = (track) => track?.targets.find(({ steered }) => steered);

export const followedOf = (track) => track?.targets.filter(({ state }) => state !== "IDLE") ?? [];

/** Whether the page must distinguish targets: there are several, or one that is not steered. */
export const areMany = (targets) => targets.length > 1 || targets.some(({ steered }) => !steered);

/** A target's speed, px/s; null if it is unknown. */
export const speedOf = ({ velocity_valid, velocity }) => (velocity_valid && velocity.every((v) => v !== null) ? Math.hypot(...velocity) : null);

/** A target's box, else its last known box, as {x, y, width, height} in image px; null if there is none. */
export function boxOf({ box, last }) {
  const [x, y, width, height] = box ?? last ?? [];
  return x === undefined ? null : { x, y, width, height };
}

/** The smallest target whose box contains an image point, or is at most `marginPx` image px away; undefined if there is
 * none. */
export function targetAt(targets, point, marginPx) {
  const around = targets.filter((target) => {
    const box = boxOf(target);
    return box && isInside(grown(box, marginPx), point);
  });
  const area = (target) => boxOf(target).width * boxOf(target).height;
  return around.reduce((best, target) => (best && area(best) <= area(target) ? best : target), undefined);
}

const centre = ({ x, y, width, height }) => ({ x: x + width / 2, y: y + height / 2 });

/** The target on which a selection {box} or {points} was drawn; undefined if it was drawn beside all targets. */
export function targetUnder(targets, { box, points }) {
  if (!box) return targetAt(targets, points[0], 0);
  return targets.find((target) => {
    const known = boxOf(target);
    return known && isInside(known, centre(box)) && isInside(box, centre(known));
  });
}

/**
 * The choices for a `selection` while `targets` are followed.
 *
 * `isTapped`: the selection was tapped, not drawn as a box. `most`: largest number of targets. `isSteering`: the gimbal is
 * steered. Returns
 * - `target`: id of the target that the selection replaces;
 * - `replaces`: whether the user must confirm that it replaces a target;
 * - `turns`, `addTurns`: whether the gimbal turns if it replaces the target, or if it is added;
 * - `mayReplace`, `mayAdd`: whether these choices are offered.
 */
export function choicesOf(selection, targets, { isTapped, most, isSteering }) {
  const steered = targets.find((one) => one.steered), drawnOn = targetUnder(targets, selection);
  const isOther = drawnOn && !drawnOn.steered && drawnOn.id !== STEERED;
  // Two kinds of selection replace a target without a question: a box that is drawn on a target, because it selects the same
  // target anew; and any selection while the steered target is not TRACKING, because it is meant for that target.
  const replaces = !isOther && steered?.state === "TRACKING" && (isTapped || !drawnOn);
  return {
    target: isOther ? drawnOn.id : STEERED,
    replaces,
    turns: isSteering && !isOther,
    mayReplace: isOther || steered !== undefined || targets.length < 2,
    mayAdd: !drawnOn && targets.length > 0 && targets.length < most && steered?.state !== "LOST",
    addTurns: isSteering && !steered,
  };
}

/** Whether a box proposed for a tap at `point` is the steered target, or at least half of it lies on that target. */
export function isFollowed(proposal, point, targets) {
  const steered = targets.find((one) => one.steered), known = steered && steered.state !== "LOST" && boxOf(steered);
  if (!known || !isInside(known, point)) return false;
  const inside = clipBox({ ...proposal, x: proposal.x - known.x, y: proposal.y - known.y }, known.width, known.height);
  return 2 * inside.width * inside.height >= proposal.width * proposal.height;
}

/** The list of targets on the page: a button for each target, while targets must be distinguished. */
export class TargetList {
  /** `pick(id)` is called when the button of a target is pressed. */
  constructor(element, pick) {
    this.element = element;
    this.pick = pick;
  }

  show(targets, isGrey) {
    const shown = areMany(targets) ? targets : [];
    this.element.hidden = !shown.length;
    for (const row of [...this.element.children]) if (!shown.some(({ id }) => id === Number(row.dataset.id))) row.remove();
    for (const target of shown) {
      const row = this.#row(target);
      const text = `${target.id} ${isGrey ? "UNKNOWN" : target.state}`;
      if (row.textContent !== text) row.textContent = text;
      row.setAttribute("aria-pressed", String(target.steered));
    }
  }

  #row(target) {
    const rows = [...this.element.children];
    const known = rows.find((row) => Number(row.dataset.id) === target.id);
    if (known) return known;
    const row = document.createElement("button");
    row.dataset.id = target.id;
    row.style.borderLeftColor = colourOf(target);
    row.onclick = () => this.pick(target.id);
    this.element.insertBefore(row, rows.find((other) => Number(other.dataset.id) > target.id) ?? null);
    return row;
  }
}
