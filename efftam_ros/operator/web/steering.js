// The gimbal's panel: its state, a first and a second press to enable, and a Stop that is always there.

const ARMED_MS = 5000;
// A double click is one press; the server wants the second to be a decision of its own.
const BOUNCE_MS = 350;

export class SteeringPanel {
  /** `command(action)` sends arm, enable or stop. */
  constructor(command) {
    this.command = command;
    this.panel = document.getElementById("steering");
    this.text = document.getElementById("steering-text");
    this.enable = document.getElementById("steer");
    this.armedMs = null;
    this.enable.onclick = () => this.press(performance.now());
    document.getElementById("stop").onclick = () => this.stop();
  }

  show(isThere) {
    this.panel.hidden = !isThere;
  }

  get isThere() {
    return !this.panel.hidden;
  }

  update({ available, enabled, text }) {
    this.enabled = enabled;
    this.panel.dataset.state = !available ? "off" : enabled ? "on" : "ready";
    const word = !available ? "GIMBAL NOT RUNNING" : enabled ? "GIMBAL FOLLOWS" : "GIMBAL STOPPED";
    this.text.textContent = text ? `${word}: ${text}` : word;
    this.enable.disabled = !available || enabled;
    if (enabled || !available) this.disarm();
  }

  press(nowMs) {
    if (this.armedMs === null) {
      this.armedMs = nowMs;
      this.enable.textContent = "Press again to steer";
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
    this.command("stop");
  }
}
