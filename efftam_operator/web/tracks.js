// Keeps the server's track messages by the stamps of their images. Uses no DOM.

const MAX_TRACKS = 240;
// Messages whose stamps differ by more than this belong to different runs of a bag.
const SPAN_NS = 60_000_000_000n;

const selectionOf = (track) => Math.max(...track.targets.map(({ selection }) => selection));

export class Tracks {
  // Stamp (BigInt) -> track message, in order of arrival.
  #tracks = new Map();

  /** Keep a track message. Returns whether its image is the newest of all kept ones. */
  add(track) {
    const stamp = BigInt(track.stamp), last = [...this.#tracks.keys()].pop();
    // Stamps went far back: a bag starts again, and earlier messages belong to other pictures.
    if (last !== undefined && last - stamp > SPAN_NS) this.#tracks.clear();
    // A target was selected on an older picture: messages on later pictures belong to the selection before, and are removed.
    // Messages of the same selection are kept.
    for (const [later, known] of this.#tracks) if (later > stamp && selectionOf(known) < selectionOf(track)) this.#tracks.delete(later);
    this.#tracks.set(stamp, track);
    // A Map keeps the order of insertion, so its first entry is the oldest.
    if (this.#tracks.size > MAX_TRACKS) this.#tracks.delete(this.#tracks.keys().next().value);
    return [...this.#tracks.keys()].every((other) => other <= stamp);
  }

  /** The track of the image of `stamp` (BigInt), or else of the newest earlier image; undefined if there is none. The result
   * also has `behindS`: by how much the track's image is older than the image of `stamp`, s. */
  of(stamp) {
    const known = [...this.#tracks.keys()].reduce((best, known) => (known <= stamp && (best === null || known > best) ? known : best), null);
    if (known === null || stamp - known > SPAN_NS) return undefined;
    return { ...this.#tracks.get(known), behindS: Number(stamp - known) / 1e9 };
  }

  forget() {
    this.#tracks.clear();
  }
}
