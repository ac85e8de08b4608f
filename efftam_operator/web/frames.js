// From bytes to a picture on the screen: one frame in decode, the newest waiting.

import { WHOLE_SEQ, decodeFrame } from "./wire.js";

export class Frames extends EventTarget {
  shown = null; // {stamp, bitmap, width, height, arrivedMs, isSmall} with the size of the camera's image
  /** Since when pictures are smaller than the camera's; null where they are not. */
  smallMs = null;
  #past = [];
  #waiting = null;
  #decoding = false;
  #acknowledge;

  constructor(acknowledge) {
    super();
    this.#acknowledge = acknowledge;
    document.addEventListener("visibilitychange", () => this.#next());
  }

  /** Free what was shown before but for the bitmap `used`: pictures are too large to wait for the garbage collector,
   * which doesn't see their size. */
  release(used) {
    for (const bitmap of this.#past) if (bitmap !== used) bitmap.close();
    this.#past = this.#past.filter((bitmap) => bitmap === used);
  }

  forget() {
    this.#waiting = this.smallMs = null;
  }

  add(buffer) {
    const frame = decodeFrame(buffer);
    frame.arrivedMs = performance.now();
    if (frame.seq === WHOLE_SEQ) {
      this.#decode(frame, "whole");
      return;
    }
    if (this.#waiting) this.#acknowledge(this.#waiting.seq);
    this.#waiting = frame;
    this.#next();
  }

  async #next() {
    // A page that nobody sees takes no more frames: the server stops after those that are not acknowledged.
    if (this.#decoding || !this.#waiting || document.hidden) return;
    const frame = this.#waiting;
    this.#waiting = null;
    this.#decoding = true;
    await this.#decode(frame, "shown");
    this.#decoding = false;
    this.#next();
  }

  async #decode({ payload, seq, ...frame }, event) {
    try {
      const bitmap = await createImageBitmap(new Blob([payload], { type: "image/jpeg" }));
      this.#show({ ...frame, bitmap, width: frame.width || bitmap.width, height: frame.height || bitmap.height }, event);
    } catch {
      this.dispatchEvent(new Event("unreadable"));
    } finally {
      this.#acknowledge(seq);
    }
  }

  #show(frame, event) {
    frame.isSmall = frame.bitmap.width < frame.width;
    if (event === "shown") {
      if (this.shown) this.#past.push(this.shown.bitmap);
      this.shown = frame;
      this.smallMs = frame.isSmall ? this.smallMs ?? frame.arrivedMs : null;
    } else {
      this.#past.push(frame.bitmap); // kept as long as it is drawn on
    }
    this.dispatchEvent(new CustomEvent(event, { detail: frame }));
  }
}
