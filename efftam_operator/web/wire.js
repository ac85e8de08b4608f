// Encodes and decodes the messages between page and server. Uses no DOM.
//
// Stamps are BigInt or text, because a Number can't represent nanoseconds exactly.

export const VERSION = 1;
const HEADER_BYTES = 30;
// The bytes "EFTM" as a little-endian number.
const MAGIC = 0x4d544645;
const CODEC_JPEG = 1;
/** Sequence number of a full-size picture that the page has requested. */
export const WHOLE_SEQ = 0;

/** Decode a binary message into {stamp, sentNs, seq, width, height, payload}. Width and height are those of the camera's
 * image, 0 if they are the same as the payload's. Throws an Error that states what is wrong with the message. */
export function decodeFrame(buffer) {
  if (buffer.byteLength <= HEADER_BYTES) throw new Error(`the server has sent a frame of ${buffer.byteLength} bytes, which is too short`);
  const data = new DataView(buffer);
  if (data.getUint32(0, true) !== MAGIC) throw new Error("the server has sent a binary message that is no frame");
  if (data.getUint8(4) !== VERSION) throw new Error(`the server sends frames of version ${data.getUint8(4)}, which this page can't decode; reload the page`);
  if (data.getUint8(5) !== CODEC_JPEG) throw new Error(`the server sends frames of the unknown codec ${data.getUint8(5)}; reload the page`);
  return {
    width: data.getUint16(6, true),
    height: data.getUint16(8, true),
    stamp: data.getBigUint64(10, true),
    sentNs: data.getBigUint64(18, true),
    seq: data.getUint32(26, true),
    payload: new Uint8Array(buffer, HEADER_BYTES),
  };
}

/** The message for a selection {box} or {points, labels} on the image of `stamp` (BigInt). `target`: id, or `STEERED` or
 * `NEXT_FREE`. */
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
 * Estimates the server's clock from pings. The offset between the clocks is the server's time minus the mean of the page
 * times at which the ping was sent and its answer received. Of the last ten pings, the one that was answered fastest is
 * used. Page times are in ms, of any monotonic clock.
 */
export class ServerClock {
  #samples = [];

  /** Add a ping: page times of sending it and of receiving its answer, and the server's time in the answer, ns. */
  add(sentMs, serverNs, receivedMs) {
    const wayMs = receivedMs - sentMs;
    if (!(wayMs >= 0)) return;
    this.#samples.push({ wayMs, offsetMs: toMs(BigInt(serverNs)) - (sentMs + receivedMs) / 2 });
    if (this.#samples.length > 10) this.#samples.shift();
  }

  get #best() {
    return this.#samples.reduce((a, b) => (b.wayMs < a.wayMs ? b : a), { wayMs: Infinity, offsetMs: NaN });
  }

  /** The server's time at a page time, ms; NaN before the first ping was answered. */
  at(pageMs) {
    return pageMs + this.#best.offsetMs;
  }

  /** The age at a page time of the image of `stamp`, ms; null if it is unknown: no ping was answered yet, or the camera's
   * clock is not the server's. */
  ageMs(stamp, pageMs) {
    const age = this.at(pageMs) - toMs(stamp);
    return age > -200 && age < 3_600_000 ? Math.max(0, age) : null;
  }
}
