// The target's position on the ground as text and map, and the buttons that let the autopilot follow it.

import { ArmedButton } from "./armed.js";
import { GroundMap, Trail, positionLines } from "./map.js";

// A position without a newer one for this time is shown as outdated.
const OLD_MS = 2000;
const NO_BRIDGE = { available: false, enabled: false, sending: false, reason: "" };

export class FollowPanel {
  #position = null;
  #positionMs = -Infinity;
  #state = NO_BRIDGE;
  #known = { hasLink: true, mayEnable: true };
  #trail = new Trail();

  /** `command(action)` sends "arm", "enable" or "stop" to the server; `map`: a `GroundMap`. */
  constructor(command, map) {
    const of = (id) => document.getElementById(id);
    Object.assign(this, { command, map, place: of("place"), text: of("place-text"), reason: of("follow-text"), corner: of("corner"), follow: of("follow"), end: of("follow-end") });
    this.button = new ArmedButton(this.follow, { idle: "Follow", armed: "Press again: the vehicle moves" }, command);
    this.end.onclick = () => this.stop();
  }

  /** Forget all that was received and hide the panel, until a position or the bridge's status arrives. */
  forget() {
    this.#position = null;
    this.#state = NO_BRIDGE;
    this.#trail.add(null);
    this.place.hidden = this.corner.hidden = true;
    this.button.disarm();
  }

  /** Receive the server's message `position`; `nowMs`: when it arrived. */
  locate(position, nowMs) {
    const before = this.#position;
    if (position.selection !== before?.selection || position.target !== before?.target) this.#trail.add(null);
    if (position.valid) this.#trail.add(position, nowMs);
    this.#position = position;
    this.#positionMs = nowMs;
  }

  /** Receive the server's message on following. Returns whether anything but the message's reason has changed. */
  update(state) {
    const before = this.#state;
    this.#state = state;
    return ["available", "enabled", "sending"].some((key) => state[key] !== before[key]);
  }

  /** Receive {hasLink, mayEnable}. `hasLink`: the link works, so the last message is up to date; `mayEnable`: this page is in
   * control. */
  know(known) {
    this.#known = known;
  }

  get isOn() {
    return this.#state.enabled;
  }

  disarm() {
    this.button.disarm();
  }

  stop() {
    this.button.disarm();
    this.command("stop");
  }

  /** One line: whether the autopilot gets positions, or why the button Follow can't be pressed. */
  get summary() {
    const { available, enabled, sending, reason } = this.#state, { hasLink, mayEnable } = this.#known;
    if (!hasLink) return "FOLLOW UNKNOWN: no link";
    if (enabled) return sending ? "FOLLOW ON: the autopilot gets the position" : `FOLLOW WAITS: ${reason}`;
    if (!available) return `FOLLOW OFF: ${reason || "no MAVLink bridge runs"}`;
    if (!mayEnable) return "FOLLOW OFF: another page is in control";
    return reason ? `FOLLOW OFF: ${reason}` : "FOLLOW OFF";
  }

  paint(nowMs) {
    const { available, enabled } = this.#state, { hasLink, mayEnable } = this.#known;
    const isOld = !hasLink || nowMs - this.#positionMs > OLD_MS;
    this.place.hidden = !this.#position && !available;
    this.map.canvas.hidden = !this.#position?.valid;
    this.end.hidden = !enabled;
    this.corner.hidden = this.map.canvas.hidden && !enabled;
    if (this.place.hidden) return;
    const position = isOld && this.#position ? { valid: false, reason: "none arrives" } : this.#position;
    this.text.textContent = positionLines(position).join("\n");
    this.reason.textContent = this.summary;
    this.follow.disabled = !available || enabled || !mayEnable || !hasLink;
    if (this.follow.disabled) this.button.disarm();
    if (!this.map.canvas.hidden) this.map.paint(this.#position, this.#trail.points, isOld);
  }
}

/** A `GroundMap` on the page's canvas `map`, in the colours of the page's theme. */
export function groundMap() {
  return new GroundMap(document.getElementById("map"), () => {
    const style = getComputedStyle(document.body), colour = (name) => style.getPropertyValue(name).trim();
    return { ink: colour("--ink"), target: colour("--good"), faint: colour("--dim") };
  });
}
