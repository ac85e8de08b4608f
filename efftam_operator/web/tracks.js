// What the tracker said of each image, by stamp. No DOM.

const MOST_TRACKS = 240;
// Answers that are further off belong to another run of the stamps.
const SPAN_NS = 60_000_000_000n;

const selectionOf = (track) => Math.max(...track.targets.map(({ selection }) => selection));

export class Tracks {
  #told = new Map(); // stamp (BigInt) -> track message, in order of arrival

  /** Returns whether it is of the newest image that was answered. */
  add(track) {
    const stamp = BigInt(track.stamp), last = [...this.#told.keys()].pop();
    // A bag that starts again: what was told before belongs to other pictures.
    if (last !== undefined && last - stamp > SPAN_NS) this.#told.clear();
    // Selected on an older picture: what was told of later ones was of what was followed before. A late answer of the same
    // selection takes nothing back.
    for (const [later, told] of this.#told) if (later > stamp && selectionOf(told) < selectionOf(track)) this.#told.delete(later);
    this.#told.set(stamp, track);
    // A Map keeps the order of insertion: the first is the oldest.
    if (this.#told.size > MOST_TRACKS) this.#told.delete(this.#told.keys().next().value);
    return [...this.#told.keys()].every((other) => other <= stamp);
  }

  /** What the tracker said last as of the image of a stamp (BigInt), with {behindS}, how much older the image is that it
   * is true for; undefined when nothing is known. */
  of(stamp) {
    const told = [...this.#told.keys()].reduce((best, known) => (known <= stamp && (best === null || known > best) ? known : best), null);
    if (told === null || stamp - told > SPAN_NS) return undefined;
    return { ...this.#told.get(told), behindS: Number(stamp - told) / 1e9 };
  }

  forget() {
    this.#told.clear();
  }
}
