// Two scales that show the direction of the gimbal between its stops: pitch at the right, yaw at the bottom.

const LENGTH_PX = 110, RIGHT_PX = 22, BELOW_PX = 32, TEXT_PX = 40;
// The yaw scale is painted only in an area of at least this height.
const MIN_HEIGHT_PX = 150;
// A scale has the warning colour when the angle is at most this far from a stop, degrees.
const NEAR_DEG = 3;
const INK = "#fff", WARN = "#f0e442", EDGE = "rgba(0, 0, 0, 0.75)";

/** A scale as {low, high, isNear, share}: its ends, degrees; whether `angle` is near to a stop; the place of `angle` between
 * the ends, 0 to 1. The stops are `least` and `most` (null: none); without a stop the scale ends at `widest`. */
export function scaleOf(angle, [least, most], widest) {
  const low = Math.max(least ?? -widest, -widest), high = Math.min(most ?? widest, widest);
  const isNear = (least !== null && angle - least < NEAR_DEG) || (most !== null && most - angle < NEAR_DEG);
  return { low, high, isNear, share: Math.min(1, Math.max(0, (angle - low) / (high - low || 1))) };
}

/** Paint the scales for the server's `angles` {pitch, yaw, pitch_limits, yaw_limits}, degrees, into the rectangle `room` of a
 * canvas context. Returns the rectangles {x, y, width, height} that they cover. The scale of an unknown angle is not painted. */
export function paintAngles(context, room, { pitch, yaw, pitch_limits, yaw_limits }) {
  const places = [];
  const length = Math.min(LENGTH_PX, room.height * 0.5, room.width * 0.4);
  if (Number.isFinite(pitch)) {
    const x = room.x + room.width - RIGHT_PX, y = room.y + (room.height - length) / 2;
    const scale = scaleOf(pitch, pitch_limits, 90);
    const at = y + length * (1 - scale.share), zero = y + length * (1 - scaleOf(0, pitch_limits, 90).share);
    paint(context, [[x, y, x, y + length], [x - 6, zero, x + 6, zero]], [x - 8, at, -1, 0], `${pitch}°`, [x - 14, at, "right"], scale.isNear);
    places.push({ x: x - 14 - TEXT_PX, y: y - 8, width: TEXT_PX + 28, height: length + 16 });
  }
  if (Number.isFinite(yaw) && room.height >= MIN_HEIGHT_PX) {
    const x = room.x + (room.width - length) / 2, y = room.y + room.height - BELOW_PX;
    const scale = scaleOf(yaw, yaw_limits, 180);
    const at = x + length * scale.share, zero = x + length * scaleOf(0, yaw_limits, 180).share;
    paint(context, [[x, y, x + length, y], [zero, y - 6, zero, y + 6]], [at, y - 8, 0, -1], `${yaw}°`, [at, y - 20, "center"], scale.isNear);
    places.push({ x: x - TEXT_PX / 2, y: y - 30, width: length + TEXT_PX, height: 40 });
  }
  return places;
}

/** Paint one scale: its `lines` [x0, y0, x1, y1], a triangular marker, and `text` at [x, y, align]. The marker is given as
 * [x, y, dx, dy]: it lies at (x, y), and its tip points against the direction (dx, dy), to the scale. */
function paint(context, lines, [mx, my, dx, dy], text, [tx, ty, align], isNear) {
  const colour = isNear ? WARN : INK;
  for (const [style, width] of [[EDGE, 5], [colour, 2]]) {
    context.strokeStyle = context.fillStyle = style;
    context.lineWidth = width;
    context.beginPath();
    for (const [x0, y0, x1, y1] of lines) {
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
    }
    context.stroke();
  }
  context.fillStyle = colour;
  context.strokeStyle = EDGE;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(mx - dx * 8, my - dy * 8);
  context.lineTo(mx + dx * 2 - dy * 6, my + dy * 2 - dx * 6);
  context.lineTo(mx + dx * 2 + dy * 6, my + dy * 2 + dx * 6);
  context.closePath();
  context.stroke();
  context.fill();
  context.font = "600 14px system-ui, sans-serif";
  context.textAlign = align;
  context.textBaseline = "middle";
  context.lineWidth = 4;
  context.strokeText(text, tx, ty);
  context.fillText(text, tx, ty);
  context.textAlign = "left";
}
