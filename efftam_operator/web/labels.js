// Places the labels of targets: inside the view, beside their boxes, and covering as little as possible. Uses no DOM.

const GAP_PX = 5;

/** The area that two rectangles {x, y, width, height} have in common, px². */
export function common(a, b) {
  const width = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
  const height = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
  return width > 0 && height > 0 ? width * height : 0;
}

/** The possible places of a label {width, height} beside a box, preferred ones first, each moved into the view. */
function placesOf({ width, height }, box, view) {
  const right = box.x + box.width, below = box.y + box.height + GAP_PX, above = box.y - height - GAP_PX;
  const left = box.x - width - GAP_PX, end = right - width, beside = right + GAP_PX;
  const places = [
    [box.x, above], [box.x, below], [end, above], [end, below], [beside, box.y], [left, box.y],
    [beside, box.y + box.height - height], [left, box.y + box.height - height], [beside, above], [left, above], [beside, below], [left, below],
  ];
  const within = (value, size, length) => Math.min(Math.max(value, 2), Math.max(2, length - size - 2));
  return places.map(([x, y]) => ({ x: within(x, width, view.width), y: within(y, height, view.height), width, height }));
}

/**
 * Returns a place {x, y, width, height} for each of `labels` {width, height, box}, in px of the view. Earlier labels choose
 * first. A label covers another one only if there is no other place. If there is room, it also covers no box of `labels` or
 * `boxes`, and none of the rectangles `panels`.
 */
export function placeLabels(labels, view, panels = [], boxes = []) {
  const placed = [], targets = [...labels.map(({ box }) => box), ...boxes];
  for (const label of labels) {
    const covered = (place) =>
      100 * placed.reduce((sum, other) => sum + common(place, other), 0) +
      4 * panels.reduce((sum, panel) => sum + common(place, panel), 0) +
      targets.reduce((sum, box) => sum + common(place, box), 0);
    const free = shifted(label, placesOf(label, label.box, view), view, placed);
    placed.push(free.reduce((best, place) => (covered(place) < covered(best) ? place : best)));
  }
  return placed;
}

/** Those of `places` that overlap no label in `placed`. If there are none: places right below or above the placed labels. If
 * those are not free either: all of `places`. */
function shifted(label, places, view, placed) {
  const isFree = (place) => placed.every((other) => !common(place, other));
  const free = places.filter(isFree);
  if (free.length) return free;
  const stacked = placed.flatMap((other) => [{ ...places[0], y: other.y + other.height + 2 }, { ...places[0], y: other.y - label.height - 2 }]);
  const inView = stacked.filter((place) => place.y >= 0 && place.y + place.height <= view.height && isFree(place));
  return inView.length ? inView : places;
}
