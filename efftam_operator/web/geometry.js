// Boxes, and the conversion between pixels of the image and of the view. Uses no DOM.

/** Shortest side of a drawn box, image px. A smaller box is taken for a slip of the hand. */
export const MIN_BOX_PX = 4;
export const MAX_ZOOM = 16;
export const LENS_RADIUS_PX = 64;
/** Smallest share of the screen that a picture covers at first. A picture that covers less, because its shape differs from
 * the screen's, is enlarged. */
export const MIN_SHARE = 0.6;
// A target is kept at least this share of the view away from the borders while the picture is enlarged.
const KEPT_SHARE = 0.2;
// This share of the height that a picture leaves free lies above the picture, where the banners are.
const ABOVE_SHARE = 0.75;

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** The box {x, y, width, height} between two opposite corners. */
export function boxFromCorners(a, b) {
  return { x: Math.min(a.x, b.x), y: Math.min(a.y, b.y), width: Math.abs(a.x - b.x), height: Math.abs(a.y - b.y) };
}

/** The part of `box` inside an image of this width and height, px; its sides may be 0. */
export function clipBox(box, width, height) {
  const x0 = clamp(box.x, 0, width), y0 = clamp(box.y, 0, height);
  const x1 = clamp(box.x + box.width, 0, width), y1 = clamp(box.y + box.height, 0, height);
  return { x: x0, y: y0, width: x1 - x0, height: y1 - y0 };
}

export const isTooSmall = (box) => box.width < MIN_BOX_PX || box.height < MIN_BOX_PX;

export const isInside = (box, { x, y }) => x >= box.x && y >= box.y && x <= box.x + box.width && y <= box.y + box.height;

/** A box that is larger than the given one by `by` px on each of its four sides. */
export const grown = ({ x, y, width, height }, by) => ({ x: x - by, y: y - by, width: width + 2 * by, height: height + 2 * by });

/** `box` moved by (dx, dy), but not beyond the borders of an image of this width and height. */
export function moveBox(box, dx, dy, width, height) {
  const x = clamp(box.x + dx, 0, Math.max(0, width - box.width));
  const y = clamp(box.y + dy, 0, Math.max(0, height - box.height));
  return { ...box, x, y };
}

/**
 * The place of the image in the view, which is the whole screen. View coordinates are in CSS px.
 *
 * `zoom`: 1 shows the whole image. `centre`: the image point in the middle of the view. `insets`: heights {top, bottom} of the
 * view that the page's bars cover.
 *
 * While `isFilled`, an image of another shape than the screen is enlarged until it covers MIN_SHARE of the screen, and the
 * target is kept in view. That ends when the user zooms or pans.
 */
export class Viewport {
  constructor() {
    this.image = { width: 0, height: 0 };
    this.view = { width: 0, height: 0 };
    this.insets = { top: 0, bottom: 0 };
    this.zoom = 1;
    this.isFilled = true;
    this.#middle();
  }

  /** Show the whole picture. */
  showWhole() {
    this.isFilled = false;
    this.zoom = 1;
    this.#settle();
  }

  /** Enlarge the picture to `filledZoom`, and keep the target in view from now on. */
  fill() {
    this.isFilled = true;
    this.zoom = this.filledZoom;
    this.#settle();
  }

  /** The smallest zoom, at least 1, at which the image covers MIN_SHARE of the screen. */
  get filledZoom() {
    const { image, view } = this;
    if (!image.width || !view.width || !view.height) return 1;
    const scales = [view.width / image.width, view.height / image.height];
    return Math.max(1, (MIN_SHARE * Math.max(...scales)) / Math.min(...scales));
  }

  /** Set the size of the image, px. A new size resets zoom and place. */
  setImage(width, height) {
    if (width === this.image.width && height === this.image.height) return;
    this.image = { width, height };
    this.#middle();
    this.fill();
  }

  setView(width, height) {
    this.view = { width, height };
    if (this.isFilled) this.zoom = this.filledZoom;
    this.#settle();
  }

  /** Set the heights that the page's bars cover at top and bottom, px. The image lies between them if there is room. */
  setInsets(top, bottom) {
    this.insets = { top, bottom };
    this.#settle();
  }

  /** View px per image px. */
  get scale() {
    const { image, view } = this;
    if (!image.width || !image.height) return 1;
    return this.zoom * Math.min(view.width / image.width, view.height / image.height);
  }

  /** The image's top left corner, in view px. */
  get origin() {
    const { scale, view, centre } = this;
    return { x: view.width / 2 - centre.x * scale, y: view.height / 2 - centre.y * scale };
  }

  toImage(point) {
    const { scale, origin } = this;
    return { x: (point.x - origin.x) / scale, y: (point.y - origin.y) / scale };
  }

  toView(point) {
    const { scale, origin } = this;
    return { x: point.x * scale + origin.x, y: point.y * scale + origin.y };
  }

  /** The image point under a view point, inside the image. */
  toImageInside(point) {
    const { x, y } = this.toImage(point);
    return { x: clamp(x, 0, this.image.width), y: clamp(y, 0, this.image.height) };
  }

  /** Zoom by a factor about a view point. The image point there keeps its place, as far as the image's borders allow. */
  zoomAt(factor, point) {
    const fixed = this.toImage(point);
    this.zoom = clamp(this.zoom * factor, 1, MAX_ZOOM);
    const now = this.toView(fixed);
    this.pan(point.x - now.x, point.y - now.y);
  }

  /** Move the picture by view px. */
  pan(dx, dy) {
    this.isFilled = false;
    this.#move(dx, dy);
  }

  /** While `isFilled`, move the picture just so far that `box` (image px) is at least KEPT_SHARE of the view away from
   * the view's borders. */
  keepInView(box) {
    if (!this.isFilled || this.zoom === 1) return;
    const { view, insets } = this, { scale } = this;
    const at = this.toView({ x: box.x + box.width / 2, y: box.y + box.height / 2 });
    const way = (place, half, low, high) => {
      const room = high - low, edge = Math.min(KEPT_SHARE * room + half, room / 2);
      return clamp(place, low + edge, high - edge) - place;
    };
    this.#move(way(at.x, (box.width * scale) / 2, 0, view.width), way(at.y, (box.height * scale) / 2, insets.top, view.height - insets.bottom));
  }

  #move(dx, dy) {
    this.centre = { x: this.centre.x - dx / this.scale, y: this.centre.y - dy / this.scale };
    this.#settle();
  }

  #middle() {
    this.centre = { x: this.image.width / 2, y: this.image.height / 2 };
  }

  /**
   * Correct `centre`, for each axis alone. If the image is larger than the view, the view shows nothing beyond the image.
   * If the image fits between the insets, it lies there. If it fits only into the whole view, it covers both insets by the
   * same length, as far as it stays inside the view.
   */
  #settle() {
    const { scale, view, image, insets } = this;
    // While the view has no size yet, there is nothing to correct.
    if (!scale) return;
    const settled = (centre, size, length, before, after, share) => {
      const spare = length - size * scale;
      if (spare < 0) return clamp(centre, length / scale / 2, size - length / scale / 2);
      const free = length - before - after - size * scale;
      const origin = clamp(before + free * (free > 0 ? share : 0.5), 0, spare);
      return (length / 2 - origin) / scale;
    };
    this.centre = {
      x: settled(this.centre.x, image.width, view.width, 0, 0, 0.5),
      y: settled(this.centre.y, image.height, view.height, insets.top, insets.bottom, ABOVE_SHARE),
    };
  }
}

/** Factor by which the lens enlarges the view: 4, and up to 8 if the view shows the image smaller than it is. `scale`: view
 * px per image px. */
export const lensZoom = (scale) => clamp(4 / Math.min(scale, 1), 4, 8);

/** By how much a circle reaches into a box, px; negative: minus the distance between them. */
function reach({ x, y }, radius, box) {
  const dx = Math.max(box.x - x, 0, x - box.x - box.width), dy = Math.max(box.y - y, 0, y - box.y - box.height);
  return radius - Math.hypot(dx, dy);
}

/**
 * The centre of the lens for the finger at `point`, px of the view. The lens lies above, beside or below the finger, at the
 * first of these places where it covers neither the finger nor the drawn `box` (null: none). If it covers them everywhere, it
 * lies where it covers the least.
 */
export function lensPlace(point, view, box = null, radius = LENS_RADIUS_PX) {
  const finger = { x: point.x - 24, y: point.y - 24, width: 48, height: 48 };
  const drawn = box ?? finger;
  const left = Math.min(finger.x, drawn.x), top = Math.min(finger.y, drawn.y);
  const right = Math.max(finger.x + 48, drawn.x + drawn.width), bottom = Math.max(finger.y + 48, drawn.y + drawn.height);
  const around = ([x0, y0, x1, y1]) => {
    const far = radius + 24;
    const sides = [[x1 + far, point.y], [x0 - far, point.y]];
    return [[point.x, y0 - far], ...(point.x > view.width / 2 ? sides.reverse() : sides), [point.x, y1 + far]];
  };
  const places = [[finger.x, finger.y, finger.x + 48, finger.y + 48], [left, top, right, bottom]].flatMap(around).map(([x, y]) => ({
    x: clamp(x, radius, Math.max(radius, view.width - radius)),
    y: clamp(y, radius, Math.max(radius, view.height - radius)),
  }));
  const covered = (place) => 4 * Math.max(0, reach(place, radius, finger)) + Math.max(0, reach(place, radius, drawn));
  return places.reduce((best, place) => (covered(place) < covered(best) ? place : best));
}
