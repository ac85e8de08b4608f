// The gimbal's panel: its state, a first and a second press to enable, and a Stop that is always there.

import { ArmedButton } from "./armed.js";

const STOP_MS = 1500;

const FAULTS = {
  inactive: "it runs but was not activated",
  silent: "its controller sends nothing",
  gone: "its controller has ended",
};
// The banner's text, by who is silent: [while steering is on, while it is off].
const SILENCES = {
  bridge: ["the gimbal may keep turning; take over by the stick", "STOP would not reach the gimbal"],
  autopilot: ["the gimbal does not follow", "STOP would not reach the gimbal"],
  gimbal: ["the gimbal does not follow", "nothing shows whether the gimbal stands"],
};

export class SteeringPanel {
  #state = null; // the server's last message on steering
  #stateMs = 0; // when it came
  #known = { hasLink: true, isGrey: false, mayEnable: true };
  #stopId = null; // the Stop whose answer is awaited

  /** `command(action)` sends arm, enable or stop and gives the message's id, null where it was
   * not sent; `alarm(text)` is for what must be seen. */
  constructor(command, alarm) {
    this.command = command;
    this.alarm = alarm;
    this.panel = document.getElementById("steering");
    this.text = document.querySelector("#steering-text span");
    this.enable = document.getElementById("steer");
    this.button = new ArmedButton(this.enable, { idle: "Steer", armed: "Press again to steer" }, (action) => this.command(action));
    document.getElementById("stop").onclick = () => this.stop();
  }

  /** Nothing is offered until a controller has sent its status. */
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
    this.#stateMs = performance.now();
    this.panel.hidden = false;
    this.#show();
    return ["controller", "enabled", "phase", "stop"].some((key) => state[key] !== before?.[key]);
  }

  /** `hasLink`: the last message is still true; `isGrey`: what is shown is not known to be true; `mayEnable`:
   * this page is in control. */
  know(known) {
    if (Object.keys(known).every((key) => known[key] === this.#known[key])) return;
    this.#known = known;
    this.#show();
  }

  /** {title, text, seconds} of a STOP that is not confirmed, or of what keeps the gimbal from following; null where all is well.
   * `seconds` count from the last message of who is silent. */
  fault(nowMs) {
    if (!this.#state) return null;
    const { controller, enabled, phase, silent, silent_s, stop, stop_reason } = this.#state;
    if (stop === "unconfirmed") return { title: "STOP NOT CONFIRMED", text: stop_reason, seconds: null };
    const seconds = silent_s + (nowMs - this.#stateMs) / 1000;
    if (silent) return { title: `${silent.toUpperCase()} SILENT`, text: SILENCES[silent][enabled ? 0 : 1], seconds };
    if (controller !== "silent" && !(controller === "gone" && enabled)) return null;
    return { title: `GIMBAL ${controller.toUpperCase()}`, text: FAULTS[controller] + (enabled ? `; it was ${phase}` : ""), seconds };
  }

  /** {title, text} of an alarm while another has taken the gimbal, null else. */
  get lostControl() {
    const { controller, phase, reason } = this.#state ?? {};
    if (controller !== "running" || phase !== "control lost") return null;
    return { title: "GIMBAL CONTROL LOST", text: `${reason || "another moves the gimbal"}; press Steer to take it back` };
  }

  /** Where the gimbal points, as the server's `angles`; null where that is not known. */
  get angles() {
    const { controller, silent, angles } = this.#state ?? {};
    return controller === "running" && this.#known.hasLink && !silent ? angles ?? null : null;
  }

  answered(id) {
    if (id === this.#stopId) this.#stopId = null;
    this.#show();
  }

  press(nowMs) {
    this.button.press(nowMs);
  }

  disarm() {
    this.button.disarm();
  }

  stop() {
    this.disarm();
    const id = this.#stopId = this.command("stop");
    this.#show();
    if (id === null) return this.alarm("STOP was not sent; stop the gimbal by other means");
    setTimeout(() => {
      // The answer may take longer: the server waits until the gimbal stands.
      if (this.#stopId === id && this.#state?.stop !== "waiting") this.alarm("STOP is not answered; press again, or stop the gimbal by other means");
    }, STOP_MS);
  }

  #show() {
    if (!this.#state) return;
    const { controller, enabled, phase, reason, silent, stop } = this.#state, { hasLink, isGrey, mayEnable } = this.#known;
    const runs = controller === "running" && hasLink;
    const isLost = this.lostControl !== null;
    this.panel.dataset.state = isGrey || silent ? "grey" : isLost ? "fault" : !runs ? "fault" : enabled ? "on" : "off";
    let title = `GIMBAL ${(runs ? phase : controller).toUpperCase()}`, text = runs ? reason : FAULTS[controller];
    // What the controller last reported is not known to be true while its messages do not arrive.
    if (runs && silent) [title, text] = ["GIMBAL UNKNOWN", `the ${silent} is silent`];
    if (!hasLink) [title, text] = ["GIMBAL UNKNOWN", "no link"];
    if (this.#stopId !== null) text = "STOP was sent";
    if (stop === "waiting" && hasLink) text = "STOP has arrived; waiting until the gimbal stands";
    this.text.textContent = text ? `${title}: ${text}` : title;
    this.enable.disabled = !runs || enabled || !mayEnable;
    if (this.enable.disabled) this.disarm();
  }
}
