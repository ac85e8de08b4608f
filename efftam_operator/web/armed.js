// A button that needs two presses: the first arms it, the second, within five seconds, enables.

import { announce } from "./notices.js";

const ARMED_MS = 5000;
// A second press within this time is ignored, so that a double click does not enable.
const BOUNCE_MS = 350;

export class ArmedButton {
  #armedMs = null;
  #timer = 0;

  /** `labels`: the button's texts {idle, armed}; `command(action)` is called with "arm" at the first press, with "enable" at
   * the second. */
  constructor(button, labels, command) {
    Object.assign(this, { button, labels, command });
    button.onclick = () => this.press(performance.now());
  }

  press(nowMs) {
    if (this.#armedMs === null) {
      this.#armedMs = nowMs;
      announce(this.button.textContent = this.labels.armed);
      this.button.classList.add("armed");
      this.#timer = setTimeout(() => this.disarm(), ARMED_MS);
      this.command("arm");
    } else if (nowMs - this.#armedMs > BOUNCE_MS) {
      this.disarm();
      this.command("enable");
    }
  }

  disarm() {
    clearTimeout(this.#timer);
    this.#armedMs = null;
    this.button.textContent = this.labels.idle;
    this.button.classList.remove("armed");
  }
}
