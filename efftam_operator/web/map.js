// A sketch of the ground, north up: the vehicle, the target, the target's uncertainty and its track of the last minute.

export const TRAIL_MS = 60000;
// Distance between two points of the trail, m.
const TRAIL_STEP_M = 0.5;
// On each axis the map covers ROOM times the distance between its outermost places, or ROOM * MIN_SPAN_M metres if this is
// more.
const ROOM = 1.25, MIN_SPAN_M = 20;
const BAR_PX = 90, BAR_ROOM_PX = 30;

/** The target's positions over the last minute. */
export class Trail {
  #points = [];

  /** Add the position {x, y} (m to the east and north) at `nowMs`. null removes all points, because another target begins. */
  add(place, nowMs) {
    if (place === null) {
      this.#points = [];
      return;
    }
    this.#points = this.#points.filter((p) => nowMs - p.ms <= TRAIL_MS);
    const last = this.#points.at(-1);
    if (!last || Math.hypot(place.x - last.x, place.y - last.y) >= TRAIL_STEP_M) this.#points.push({ x: place.x, y: place.y, ms: nowMs });
  }

  get points() {
    return this.#points;
  }
}

/** The transform {px, toX, toY} by which all `places` {x, y, radius?}, in m, fit into an area of width x height px. `px`:
 * pixels per metre; `toX(east)` and `toY(north)` convert m to px. */
export function fit(places, width, height) {
  const edges = { left: Infinity, right: -Infinity, bottom: Infinity, top: -Infinity };
  for (const { x, y, radius = 0 } of places) {
    edges.left = Math.min(edges.left, x - radius);
    edges.right = Math.max(edges.right, x + radius);
    edges.bottom = Math.min(edges.bottom, y - radius);
    edges.top = Math.max(edges.top, y + radius);
  }
  const across = Math.max(edges.right - edges.left, MIN_SPAN_M) * ROOM, along = Math.max(edges.top - edges.bottom, MIN_SPAN_M) * ROOM;
  const px = Math.min(width / across, height / along);
  const x = (edges.left + edges.right) / 2, y = (edges.bottom + edges.top) / 2;
  return { px, toX: (east) => width / 2 + (east - x) * px, toY: (north) => height / 2 - (north - y) * px };
}

/** The largest of 1, 2, 5, 10, 20, ... that is at most `metres`: the length of the scale bar. */
export function barLength(metres) {
  const power = 10 ** Math.floor(Math.log10(metres));
  return [5, 2, 1].map((m) => m * power).find((m) => m <= metres);
}

/** The lines of text for the server's message `position`; null: none has arrived. */
export function positionLines(position) {
  if (!position) return ["no position"];
  if (!position.valid) return [`no position: ${position.reason}`];
  const lines = [`${position.range.toFixed(0)} m away, within ${position.accuracy.toFixed(1)} m, ${position.speed.toFixed(1)} m/s`];
  if (position.latitude !== null) lines.push(`${position.latitude.toFixed(6)}, ${position.longitude.toFixed(6)}`);
  lines.push(`height from ${HEIGHTS[position.height] ?? position.height}`);
  return lines;
}

const HEIGHTS = { range: "the range finder", terrain: "terrain data", home: "home: flat ground", local: "the local frame" };

export class GroundMap {
  /** `colours()` returns the current theme's colours {ink, target, faint}; `ink` is for the vehicle and text. */
  constructor(canvas, colours) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.colours = colours;
  }

  /** Paint the map. `position`: the last message `position`, or null; `trail`: points {x, y}; `isGrey`: the position may be
   * outdated, so the map is pale. */
  paint(position, trail, isGrey = false) {
    const { canvas, context } = this, { width, height } = canvas;
    context.clearRect(0, 0, width, height);
    Object.assign(this, this.colours());
    if (!position?.valid) return;
    const camera = { x: position.camera_x, y: position.camera_y }, target = { x: position.x, y: position.y, radius: position.accuracy };
    const view = fit([camera, target, ...trail], width, height - BAR_ROOM_PX);
    context.globalAlpha = isGrey ? 0.4 : 1;
    this.#line(trail.concat([target]), view, this.target, [2, 3]);
    this.#line([camera, target], view, this.faint, []);
    this.#circle(target, position.accuracy * view.px, view);
    this.#dot(target, view);
    this.#vehicle(camera, view);
    this.#bar(view, width, height);
    this.#north(width);
    context.globalAlpha = 1;
  }

  #line(points, { toX, toY }, colour, dash) {
    const { context } = this;
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.setLineDash(dash);
    context.beginPath();
    points.forEach(({ x, y }, i) => (i ? context.lineTo(toX(x), toY(y)) : context.moveTo(toX(x), toY(y))));
    context.stroke();
    context.setLineDash([]);
  }

  #circle({ x, y }, radius, { toX, toY }) {
    this.context.strokeStyle = this.target;
    this.context.beginPath();
    this.context.arc(toX(x), toY(y), Math.max(radius, 3), 0, 2 * Math.PI);
    this.context.stroke();
  }

  #dot({ x, y }, { toX, toY }) {
    this.context.fillStyle = this.target;
    this.context.beginPath();
    this.context.arc(toX(x), toY(y), 3, 0, 2 * Math.PI);
    this.context.fill();
  }

  /** Paint the vehicle as a diagonal cross, like a multicopter from above. */
  #vehicle({ x, y }, { toX, toY }) {
    const { context } = this, u = toX(x), v = toY(y);
    context.strokeStyle = this.ink;
    context.lineWidth = 2;
    context.beginPath();
    for (const [du, dv] of [[5, 5], [5, -5]]) {
      context.moveTo(u - du, v - dv);
      context.lineTo(u + du, v + dv);
    }
    context.stroke();
  }

  #bar({ px }, width, height) {
    const { context } = this, metres = barLength(Math.min(BAR_PX, width / 3) / px);
    context.strokeStyle = context.fillStyle = this.ink;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(8, height - 8);
    context.lineTo(8 + metres * px, height - 8);
    context.stroke();
    context.font = "12px system-ui, sans-serif";
    context.fillText(`${metres} m`, 8, height - 13);
  }

  #north(width) {
    const { context } = this, x = width - 14;
    context.strokeStyle = context.fillStyle = this.ink;
    context.beginPath();
    context.moveTo(x, 26);
    context.lineTo(x, 8);
    context.lineTo(x - 4, 14);
    context.moveTo(x, 8);
    context.lineTo(x + 4, 14);
    context.stroke();
    context.fillText("N", x - 4, 38);
  }
}
