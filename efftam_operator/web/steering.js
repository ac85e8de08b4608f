// The gimbal's panel: its state, a first and a second press to enable, and a Stop that is always there.

import { say } from "./notices.js";

const ARMED_MS = 5000;
// A double click is one press; the server wants the second to be a decision of its own.
const BOUNCE_MS = 350;
const STOP_MS = 1500;

const FAULTS = {
  inactive: "it runs but was not activated",
  silent: "its controller says nothing",
  gone: "its controller has ended",
};

export class SteeringPanel {
  #state = null; // what the controller said last
  #known = { hasLink: true, isGrey: false, mayEnable: true };
  #faultMs = null; // since when there is a fault
  #stopId = null; // the Stop whose answer is awaited

  /** `command(action)` sends arm, enable or stop and gives the message's id, null where it was
   * not sent; `alarm(text)` is for what must be seen. */
  constructor(command, alarm) {
    this.command = command;
    this.alarm = alarm;
    this.panel = document.getElementById("steering");
    this.text = document.querySelector("#steering-text span");
    this.enable = document.getElementById("steer");
    this.armedMs = null;
    this.enable.onclick = () => this.press(performance.now());
    document.getElementById("stop").onclick = () => this.stop();
  }

  /** Nothing is offered until a controller was heard of. */
  forget() {
    this.#state = this.#stopId = null;
    this.panel.hidden = true;
    this.disarm();
  }

  get isThere() {
    return !this.panel.hidden;
  }

  /** Whether the gimbal follows the target, as far as is known. */
  get isOn() {
    return this.#state?.enabled === true;
  }

  /** Returns whether the gimbal does something else than before. */
  update(state) {
    const before = this.#state;
    this.#state = state;
    this.panel.hidden = false;
    this.#show();
    return ["controller", "enabled", "phase"].some((key) => state[key] !== before?.[key]);
  }

  /** `hasLink`: what was heard last says something about now; `isGrey`: what is shown is not known to be true; `mayEnable`:
   * this page is in control. */
  know(known) {
    if (Object.keys(known).every((key) => known[key] === this.#known[key])) return;
    this.#known = known;
    this.#show();
  }

  /** {word, text, seconds} of what keeps the gimbal from following, null where all is well. */
  fault(nowMs) {
    const { controller, enabled, phase, reason } = this.#state ?? {};
    const dead = controller === "running" && /^(?:the|no) (autopilot|bridge|gimbal) (?:is silent|has been heard)/.exec(reason);
    const isFault = dead || controller === "silent" || (controller === "gone" && enabled);
    this.#faultMs = isFault ? this.#faultMs ?? nowMs : null;
    if (!isFault) return null;
    const seconds = (nowMs - this.#faultMs) / 1000;
    if (dead) return { word: `${dead[1].toUpperCase()} SILENT`, text: "the gimbal does not follow", seconds };
    return { word: `GIMBAL ${controller.toUpperCase()}`, text: FAULTS[controller] + (enabled ? `; it was ${phase}` : ""), seconds };
  }

  answered(id) {
    if (id === this.#stopId) this.#stopId = null;
    this.#show();
  }

  press(nowMs) {
    if (this.armedMs === null) {
      this.armedMs = nowMs;
      say(this.enable.textContent = "Press again to steer");
      this.enable.classList.add("armed");
      this.timer = setTimeout(() => this.disarm(), ARMED_MS);
      this.command("arm");
    } else if (nowMs - this.armedMs > BOUNCE_MS) {
      this.disarm();
      this.command("enable");
    }
  }

  disarm() {
    clearTimeout(this.timer);
    this.armedMs = null;
    this.enable.textContent = "Steer";
    this.enable.classList.remove("armed");
  }

  stop() {
    this.disarm();
    const id = this.#stopId = this.command("stop");
    this.#show();
    if (id === null) return this.alarm("STOP was not sent; stop the gimbal by other means");
    setTimeout(() => {
      if (this.#stopId === id) this.alarm("STOP is not answered; press again, or stop the gimbal by other means");
    }, STOP_MS);
  }

  #show() {
    if (!this.#state) return;
    const { controller, enabled, phase, reason } = this.#state, { hasLink, isGrey, mayEnable } = this.#known;
    const runs = controller === "running" && hasLink;
    this.panel.dataset.state = isGrey ? "grey" : !runs ? "fault" : enabled ? "on" : "off";
    let word = `GIMBAL ${(runs ? phase : controller).toUpperCase()}`, text = runs ? reason : FAULTS[controller];
    if (!hasLink) [word, text] = ["GIMBAL UNKNOWN", "no link"];
    if (this.#stopId !== null) text = "STOP was sent";
    this.text.textContent = text ? `${word}: ${text}` : word;
    this.enable.disabled = !runs || enabled || !mayEnable;
    if (this.enable.disabled) this.disarm();
  }
}
