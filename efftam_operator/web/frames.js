// Decodes frames into bitmaps. One frame is decoded at a time; of those that arrive meanwhile only the newest is kept.

import { WHOLE_SEQ, decodeFrame } from "./wire.js";

export class Frames extends EventTarget {
  /** The newest decoded picture {stamp, bitmap, width, height, arrivedMs, isSmall}, or null. Width and height are those of
   * the camera's image; `isSmall`: the bitmap is smaller. */
  shown = null;
  /** Page time since which all pictures have been smaller than the camera's images, ms; null if the last one is not. */
  smallMs = null;
  #past = [];
  #waiting = null;
  #decoding = false;
  #acknowledge;

  /** `acknowledge(seq)` is called once the frame with this sequence number was decoded or dropped. */
  constructor(acknowledge) {
    super();
    this.#acknowledge = acknowledge;
    document.addEventListener("visibilitychange", () => this.#next());
  }

  /** Free the bitmaps shown before, except `used`. The garbage collector would free them too late: it does not know how much
   * memory a bitmap takes. */
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
    // A hidden page decodes no frames. The server stops sending frames when it receives no acknowledgements.
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
      // Freed by the first call of `release` that does not name this bitmap as used.
      this.#past.push(frame.bitmap);
    }
    this.dispatchEvent(new CustomEvent(event, { detail: frame }));
  }
}
