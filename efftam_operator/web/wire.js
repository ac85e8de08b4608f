// The bytes and JSON between page and server. Stamps are BigInt or text, never Number: those are too coarse. No DOM.

export const VERSION = 1;
const HEADER_BYTES = 30;
const MAGIC = 0x4d544645; // "EFTM", little-endian
const CODEC_JPEG = 1;
/** Sequence number of a picture that was asked for. */
export const WHOLE_SEQ = 0;

/** A binary message as {stamp, sentNs, seq, width, height, payload} with the size of the camera's image, 0 where it is that
 * of the payload. Throws an Error with what is wrong with it. */
export function decodeFrame(buffer) {
  if (buffer.byteLength <= HEADER_BYTES) throw new Error(`a frame of ${buffer.byteLength} bytes is too short`);
  const data = new DataView(buffer);
  if (data.getUint32(0, true) !== MAGIC) throw new Error("a binary message that is no frame");
  if (data.getUint8(4) !== VERSION) throw new Error(`frames of version ${data.getUint8(4)}; reload the page`);
  if (data.getUint8(5) !== CODEC_JPEG) throw new Error(`frames of unknown codec ${data.getUint8(5)}; reload the page`);
  return {
    width: data.getUint16(6, true),
    height: data.getUint16(8, true),
    stamp: data.getBigUint64(10, true),
    sentNs: data.getBigUint64(18, true),
    seq: data.getUint32(26, true),
    payload: new Uint8Array(buffer, HEADER_BYTES),
  };
}

/** What to send for a selection {box} or {points, labels} drawn on the image of `stamp` (BigInt). */
export function selectMessage(id, stamp, selection, target = 0) {
  const common = { op: "select", id, stamp: stamp.toString(), target };
  if (selection.box) {
    const { x, y, width, height } = selection.box;
    return { ...common, kind: "box", box: [x, y, width, height] };
  }
  return { ...common, kind: "points", points: selection.points.map(({ x, y }) => [x, y]), labels: selection.labels };
}

const toMs = (ns) => Number(ns / 1000n) / 1000;

/**
 * The server's clock, from the times of a ping: offset = server's time minus the middle of sending and receiving.
 * The answer with the shortest way of the last ten is believed. Page times in ms of any steady clock.
 */
export class ServerClock {
  #samples = [];

  add(sentMs, serverNs, receivedMs) {
    const wayMs = receivedMs - sentMs;
    if (!(wayMs >= 0)) return;
    this.#samples.push({ wayMs, offsetMs: toMs(BigInt(serverNs)) - (sentMs + receivedMs) / 2 });
    if (this.#samples.length > 10) this.#samples.shift();
  }

  get #best() {
    return this.#samples.reduce((a, b) => (b.wayMs < a.wayMs ? b : a), { wayMs: Infinity, offsetMs: NaN });
  }

  /** The server's time in ms at a page time; NaN while unknown. */
  at(pageMs) {
    return pageMs + this.#best.offsetMs;
  }

  /** How old an image of `stamp` is, ms; null when unknown: no answer yet, or stamps of another clock. */
  ageMs(stamp, pageMs) {
    const age = this.at(pageMs) - toMs(stamp);
    return age > -200 && age < 3_600_000 ? Math.max(0, age) : null;
  }
}
