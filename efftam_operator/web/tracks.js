// The tracker's message on each image, by stamp. No DOM.

const MAX_TRACKS = 240;
// Answers that are further off belong to another run of the stamps.
const SPAN_NS = 60_000_000_000n;

const selectionOf = (track) => Math.max(...track.targets.map(({ selection }) => selection));

export class Tracks {
  #tracks = new Map(); // stamp (BigInt) -> track message, in order of arrival

  /** Returns whether it is of the newest image that was answered. */
  add(track) {
    const stamp = BigInt(track.stamp), last = [...this.#tracks.keys()].pop();
    // A bag that starts again: earlier messages belong to other pictures.
    if (last !== undefined && last - stamp > SPAN_NS) this.#tracks.clear();
    // Selected on an older picture: messages on later ones are of the earlier target. A late answer of the same
    // selection takes nothing back.
    for (const [later, known] of this.#tracks) if (later > stamp && selectionOf(known) < selectionOf(track)) this.#tracks.delete(later);
    this.#tracks.set(stamp, track);
    // A Map keeps the order of insertion: the first is the oldest.
    if (this.#tracks.size > MAX_TRACKS) this.#tracks.delete(this.#tracks.keys().next().value);
    return [...this.#tracks.keys()].every((other) => other <= stamp);
  }

  /** The tracker's last message as of the image of a stamp (BigInt), with {behindS}, how much older the image is that it
   * is true for; undefined when nothing is known. */
  of(stamp) {
    const known = [...this.#tracks.keys()].reduce((best, known) => (known <= stamp && (best === null || known > best) ? known : best), null);
    if (known === null || stamp - known > SPAN_NS) return undefined;
    return { ...this.#tracks.get(known), behindS: Number(stamp - known) / 1e9 };
  }

  forget() {
    this.#tracks.clear();
  }
}
