/** A picture's message as the server sends it: of a camera of 640 x 360 px, without the image's bytes. */
export function pictureMessage(stamp, seq) {
  const data = new DataView(new ArrayBuffer(31));
  data.setUint32(0, 0x4d544645, true);
  data.setUint8(4, 1);
  data.setUint8(5, 1);
  data.setUint16(6, 640, true);
  data.setUint16(8, 360, true);
  data.setBigUint64(10, BigInt(stamp), true);
  data.setUint32(26, seq, true);
  return data.buffer;
}
