// From bytes to a picture on the screen: one frame in decode, the newest waiting, and what belongs to each by stamp.

import { decodeFrame } from "./wire.js";

const MOST_TRACKS = 240;

export class Frames extends EventTarget {
  shown = null; // {stamp, bitmap, width, height, arrivedMs}
  #past = [];
  #waiting = null;
  #decoding = false;
  #tracks = new Map(); // stamp -> track message
  #acknowledge;

  constructor(acknowledge) {
    super();
    this.#acknowledge = acknowledge;
    document.addEventListener("visibilitychange", () => this.#next());
  }

  addTrack(track) {
    this.#tracks.set(track.stamp, track);
    // A Map keeps the order of insertion: the first is the oldest.
    if (this.#tracks.size > MOST_TRACKS) this.#tracks.delete(this.#tracks.keys().next().value);
  }

  /** What the tracker said of the image of a stamp (BigInt); undefined when it is not known. */
  track(stamp) {
    return this.#tracks.get(stamp.toString());
  }

  /** Free what was shown before and is none of `used` (bitmaps): pictures are too large to wait for the garbage
   * collector, which doesn't see their size. */
  release(used) {
    this.#past = this.#past.filter((bitmap) => {
      if (used.includes(bitmap)) return true;
      bitmap.close();
      return false;
    });
  }

  forget() {
    this.#tracks.clear();
    this.#waiting = null;
  }

  add(buffer) {
    const frame = decodeFrame(buffer);
    frame.arrivedMs = performance.now();
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
    try {
      const bitmap = await createImageBitmap(new Blob([frame.payload], { type: "image/jpeg" }));
      this.#show(frame, bitmap);
    } catch (error) {
      this.dispatchEvent(new CustomEvent("unreadable", { detail: error }));
    } finally {
      this.#decoding = false;
      this.#acknowledge(frame.seq);
    }
    this.#next();
  }

  #show(frame, bitmap) {
    const size = this.track(frame.stamp)?.image;
    const times = frame.half ? 2 : 1;
    if (this.shown) this.#past.push(this.shown.bitmap);
    this.shown = {
      stamp: frame.stamp,
      arrivedMs: frame.arrivedMs,
      half: frame.half,
      bitmap,
      width: size?.[0] || bitmap.width * times,
      height: size?.[1] || bitmap.height * times,
    };
    this.dispatchEvent(new Event("shown"));
  }
}
