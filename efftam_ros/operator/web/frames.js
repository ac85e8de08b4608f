// From bytes to a picture on the screen: one frame in decode, the newest waiting, and what belongs to each by stamp.

import { decodeFrame } from "./wire.js";

const MOST_TRACKS = 240;
// Answers that are further off belong to another run of the stamps.
const SPAN_NS = 60_000_000_000n;

const selectionOf = (track) => Math.max(...track.targets.map(({ selection }) => selection));

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
    // A bag that starts again: what was told before belongs to other pictures.
    const last = [...this.#tracks.keys()].pop();
    const stamp = BigInt(track.stamp);
    if (last !== undefined && last - stamp > SPAN_NS) this.#tracks.clear();
    // Selected on an older picture: what was told of later ones was of what was followed before.
    for (const [later, told] of this.#tracks) if (later > stamp && selectionOf(told) < selectionOf(track)) this.#tracks.delete(later);
    this.#tracks.set(stamp, track);
    // A Map keeps the order of insertion: the first is the oldest.
    if (this.#tracks.size > MOST_TRACKS) this.#tracks.delete(this.#tracks.keys().next().value);
  }

  /** What the tracker said last as of the image of a stamp (BigInt), with {behindS}, how much older the image is that it
   * is true for; undefined when nothing is known. */
  track(stamp) {
    const told = [...this.#tracks.keys()].reduce((best, known) => (known <= stamp && (best === null || known > best) ? known : best), null);
    if (told === null || stamp - told > SPAN_NS) return undefined;
    return { ...this.#tracks.get(told), behindS: Number(stamp - told) / 1e9 };
  }

  /** Free what was shown before but for the bitmap `used`: pictures are too large to wait for the garbage collector,
   * which doesn't see their size. */
  release(used) {
    for (const bitmap of this.#past) if (bitmap !== used) bitmap.close();
    this.#past = this.#past.filter((bitmap) => bitmap === used);
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
    } catch {
      this.dispatchEvent(new Event("unreadable"));
    } finally {
      this.#decoding = false;
      this.#acknowledge(frame.seq);
    }
    this.#next();
  }

  #show(frame, bitmap) {
    const size = this.#tracks.get(frame.stamp)?.image;
    const times = 2 ** frame.shrink;
    if (this.shown) this.#past.push(this.shown.bitmap);
    this.shown = {
      stamp: frame.stamp,
      arrivedMs: frame.arrivedMs,
      shrink: frame.shrink,
      bitmap,
      width: size?.[0] || bitmap.width * times,
      height: size?.[1] || bitmap.height * times,
    };
    this.dispatchEvent(new Event("shown"));
  }
}
