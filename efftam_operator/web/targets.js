// The targets that are followed: which one is steered by, which lies under a point, and their list.

import { TARGETS } from "./palette.js";
import { clipBox, grown, isInside } from "./geometry.js";

/** In place of a target's id: the one that is steered by, and a new one. */
export const STEERED = 0, NEXT_FREE = 255;

/** Where there are several, each has a colour of its own. */
export const colourOf = ({ id }) => TARGETS[id % TARGETS.length];

/** The target that badge, banners and speech are of; undefined where there is none. */
export const steeredOf = (track) => track?.targets.find(({ steered }) => steered);

export const followedOf = (track) => track?.targets.filter(({ state }) => state !== "IDLE") ?? [];

/** Whether targets must be distinguished: there are several, or one that is not steered by. */
export const areMany = (targets) => targets.length > 1 || targets.some(({ steered }) => !steered);

/** A target's speed, px/s; null where it is unknown. */
export const speedOf = ({ velocity_valid, velocity }) => (velocity_valid && velocity.every((v) => v !== null) ? Math.hypot(...velocity) : null);

/** A target's box, or that last seen, as {x, y, width, height}; null where it has none. */
export function boxOf({ box, last }) {
  const [x, y, width, height] = box ?? last ?? [];
  return x === undefined ? null : { x, y, width, height };
}

/** The smallest target with an image point in its box or `marginPx` beside it; undefined where there is none. */
export function targetAt(targets, point, marginPx) {
  const around = targets.filter((target) => {
    const box = boxOf(target);
    return box && isInside(grown(box, marginPx), point);
  });
  const area = (target) => boxOf(target).width * boxOf(target).height;
  return around.reduce((best, target) => (best && area(best) <= area(target) ? best : target), undefined);
}

const centre = ({ x, y, width, height }) => ({ x: x + width / 2, y: y + height / 2 });

/** The target on which a selection {box} or {points} was drawn; undefined where the place is free. */
export function targetUnder(targets, { box, points }) {
  if (!box) return targetAt(targets, points[0], 0);
  return targets.find((target) => {
    const known = boxOf(target);
    return known && isInside(known, centre(box)) && isInside(box, centre(known));
  });
}

/**
 * What may become of a `selection` while `targets` are followed: it replaces `target`, with a steered gimbal it `turns`; or it is
 * added. `isTapped`: it was not drawn as a box, but tapped; `most` targets are followed; `isSteering`: the gimbal follows.
 */
export function choicesOf(selection, targets, { isTapped, most, isSteering }) {
  const steered = targets.find((one) => one.steered), drawnOn = targetUnder(targets, selection);
  const isOther = drawnOn && !drawnOn.steered && drawnOn.id !== STEERED;
  // Whoever draws a box on a target draws that one anew, and a lost one is helped: neither is asked about.
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

/** Whether a box proposed for a tap is the target that is steered by, or a part of it. */
export function isFollowed(proposal, point, targets) {
  const steered = targets.find((one) => one.steered), known = steered && steered.state !== "LOST" && boxOf(steered);
  if (!known || !isInside(known, point)) return false;
  const inside = clipBox({ ...proposal, x: proposal.x - known.x, y: proposal.y - known.y }, known.width, known.height);
  return 2 * inside.width * inside.height >= proposal.width * proposal.height;
}

/** A button for each target, while they must be distinguished. */
export class TargetList {
  /** `pick(id)`: a target was pressed. */
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
