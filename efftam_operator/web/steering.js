// The gimbal's panel: its state, the button Steer, which needs two presses, and STOP GIMBAL, which always works.

import { ArmedButton } from "./armed.js";

const STOP_MS = 1500;

const FAULTS = {
  inactive: "it runs but was not activated",
  silent: "its controller sends nothing",
  gone: "its controller has ended",
};
// The banner's texts for each silent part: [while steering is on, while it is off].
const SILENCES = {
  bridge: ["the gimbal may keep turning; take over by the stick", "STOP would not reach the gimbal"],
  autopilot: ["the gimbal does not follow", "STOP would not reach the gimbal"],
  gimbal: ["the gimbal does not follow", "nothing shows whether the gimbal is at rest"],
};

export class SteeringPanel {
  // The server's last message on steering (null: none has arrived), and page time of its arrival.
  #state = null;
  #stateMs = 0;
  #known = { hasLink: true, isGrey: false, mayEnable: true };
  // Id of a STOP command without an answer; null: none.
  #stopId = null;

  /** `command(action)` sends "arm", "enable" or "stop" to the server and returns the message's id, null if it could not be
   * sent. `alarm(text)` shows an urgent notice. */
  constructor(command, alarm) {
    this.command = command;
    this.alarm = alarm;
    this.panel = document.getElementById("steering");
    this.text = document.querySelector("#steering-text span");
    this.enable = document.getElementById("steer");
    this.button = new ArmedButton(this.enable, { idle: "Steer", armed: "Press again to steer" }, (action) => this.command(action));
    document.getElementById("stop").onclick = () => this.stop();
  }

  /** Forget all that was received and hide the panel, until a message on steering arrives. */
  forget() {
    this.#state = this.#stopId = null;
    this.panel.hidden = true;
    this.disarm();
  }

  /** Whether the panel is shown: a message on steering has arrived. */
  get isThere() {
    return !this.panel.hidden;
  }

  /** Whether the gimbal is steered, as last reported. */
  get isOn() {
    return this.#state?.enabled === true;
  }

  /** Receive the server's message on steering. Returns whether the controller's state, its phase or the STOP's state has
   * changed. */
  update(state) {
    const before = this.#state;
    this.#state = state;
    this.#stateMs = performance.now();
    this.panel.hidden = false;
    this.#show();
    return ["controller", "enabled", "phase", "stop"].some((key) => state[key] !== before?.[key]);
  }

  /** Receive {hasLink, isGrey, mayEnable}. `hasLink`: the link works; `isGrey`: the gimbal's state may be outdated;
   * `mayEnable`: this page is in control. */
  know(known) {
    if (Object.keys(known).every((key) => known[key] === this.#known[key])) return;
    this.#known = known;
    this.#show();
  }

  /** The gimbal's fault {title, text, seconds}: a STOP that is not confirmed, or a silent part of the chain; null if there is
   * none. `seconds`: time since the last message of the silent part, or null. */
  fault(nowMs) {
    if (!this.#state) return null;
    const { controller, enabled, phase, silent, silent_s, stop, stop_reason } = this.#state;
    if (stop === "unconfirmed") return { title: "STOP NOT CONFIRMED", text: stop_reason, seconds: null };
    const seconds = silent_s + (nowMs - this.#stateMs) / 1000;
    if (silent) return { title: `${silent.toUpperCase()} SILENT`, text: SILENCES[silent][enabled ? 0 : 1], seconds };
    if (controller !== "silent" && !(controller === "gone" && enabled)) return null;
    return { title: `GIMBAL ${controller.toUpperCase()}`, text: FAULTS[controller] + (enabled ? `; it was ${phase}` : ""), seconds };
  }

  /** The alarm {title, text} while another component has control of the gimbal, else null. */
  get lostControl() {
    const { controller, phase, reason } = this.#state ?? {};
    if (controller !== "running" || phase !== "control lost") return null;
    return { title: "GIMBAL CONTROL LOST", text: `${reason || "another component moves the gimbal"}; press Steer to take it back` };
  }

  /** The direction of the gimbal as the server's `angles`; null if it is unknown. */
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
      // State "waiting": the STOP has arrived, and the server answers once the gimbal is at rest.
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
    // The controller sends, but a silent part of the chain makes its report uncertain.
    if (runs && silent) [title, text] = ["GIMBAL UNKNOWN", `the ${silent} is silent`];
    if (!hasLink) [title, text] = ["GIMBAL UNKNOWN", "no link"];
    if (this.#stopId !== null) text = "STOP was sent";
    if (stop === "waiting" && hasLink) text = "STOP has arrived; waiting until the gimbal is at rest";
    this.text.textContent = text ? `${title}: ${text}` : title;
    this.enable.disabled = !runs || enabled || !mayEnable;
    if (this.enable.disabled) this.disarm();
  }
}
