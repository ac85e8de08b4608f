import assert from "node:assert/strict";
import { test } from "node:test";
import {
  LENS_RADIUS_PX, Viewport, boxFromCorners, clipBox, isTooSmall, lensPlace, lensZoom, moveBox,
} from "../../../efftam_operator/web/geometry.js";

const near = (a, b, tolerance = 1e-9) => assert.ok(Math.abs(a - b) <= tolerance, `${a} is not ${b}`);

/** Repeatable numbers 0..1. */
function* numbers(seed) {
  for (let x = seed; ; yield x / 0x7fffffff) x = (x * 48271) % 0x7fffffff;
}

function viewport(image, view) {
  const made = new Viewport();
  made.setImage(...image);
  made.setView(...view);
  return made;
}

test("a box is the same from any pair of opposite corners", () => {
  const wanted = { x: 1, y: 2, width: 9, height: 18 };
  for (const [a, b] of [[[1, 2], [10, 20]], [[10, 20], [1, 2]], [[1, 20], [10, 2]], [[10, 2], [1, 20]]]) {
    assert.deepEqual(boxFromCorners({ x: a[0], y: a[1] }, { x: b[0], y: b[1] }), wanted);
  }
});

test("a box drawn over the edge ends at the image's edge", () => {
  assert.deepEqual(clipBox({ x: -5, y: 300, width: 20, height: 100 }, 640, 360), { x: 0, y: 300, width: 15, height: 60 });
  assert.equal(clipBox({ x: 700, y: 0, width: 20, height: 20 }, 640, 360).width, 0);
});

test("the smallest box is 4 image px on both sides", () => {
  assert.ok(!isTooSmall({ width: 4, height: 4 }));
  assert.ok(isTooSmall({ width: 3.99, height: 100 }));
  assert.ok(isTooSmall({ width: 100, height: 3.99 }));
});

test("a moved box keeps its size and stays inside", () => {
  assert.deepEqual(moveBox({ x: 1, y: 1, width: 10, height: 10 }, -5, 500, 640, 360), { x: 0, y: 350, width: 10, height: 10 });
});

test("a wide view letterboxes: black bars take no part in the picture", () => {
  const port = viewport([640, 480], [1000, 480]);
  near(port.scale, 1);
  assert.deepEqual(port.origin, { x: 180, y: 0 });
  assert.deepEqual(port.toImage({ x: 180, y: 0 }), { x: 0, y: 0 });
  assert.deepEqual(port.toImageInside({ x: 10, y: 470 }), { x: 0, y: 470 });
  assert.deepEqual(port.toImageInside({ x: 990, y: 10 }), { x: 640, y: 10 });
});

test("to the image and back is the same place, whatever the zoom", () => {
  const random = numbers(7);
  const next = () => random.next().value;
  for (let i = 0; i < 500; i++) {
    const port = viewport([16 + next() * 4000, 16 + next() * 2200], [200 + next() * 2000, 100 + next() * 1200]);
    for (let k = 0; k < 5; k++) {
      port.zoomAt(0.3 + 3 * next(), { x: next() * port.view.width, y: next() * port.view.height });
      port.pan(200 * next() - 100, 200 * next() - 100);
    }
    const point = { x: next() * port.view.width, y: next() * port.view.height };
    const back = port.toView(port.toImage(point));
    near(back.x, point.x, 1e-6);
    near(back.y, point.y, 1e-6);
  }
});

test("zooming keeps the place under the pointer", () => {
  const port = viewport([640, 480], [640, 480]);
  const at = { x: 200, y: 300 };
  const before = port.toImage(at);
  port.zoomAt(3, at);
  near(port.toImage(at).x, before.x);
  near(port.toImage(at).y, before.y);
  assert.equal(port.zoom, 3);
});

test("nothing beyond the picture is ever shown, and the whole is the smallest", () => {
  const random = numbers(3);
  const next = () => random.next().value;
  const port = viewport([1280, 720], [360, 400]);
  for (let i = 0; i < 1000; i++) {
    if (next() < 0.5) port.zoomAt(0.5 + next(), { x: next() * 360, y: next() * 400 });
    else port.pan(2000 * next() - 1000, 2000 * next() - 1000);
    assert.ok(port.zoom >= 1 && port.zoom <= 16);
    const { origin, scale } = port;
    for (const [start, size, room] of [[origin.x, 1280 * scale, 360], [origin.y, 720 * scale, 400]]) {
      if (size >= room) assert.ok(start <= 1e-6 && start + size >= room - 1e-6);
      else assert.ok(start >= -1e-6 && start + size <= room + 1e-6);
    }
  }
});

test("a camera that changes its size starts from the beginning", () => {
  const port = viewport([640, 480], [640, 480]);
  port.zoomAt(4, { x: 0, y: 0 });
  port.setImage(640, 480);
  assert.equal(port.zoom, 4);
  port.setImage(1280, 960);
  assert.equal(port.zoom, 1);
  assert.deepEqual(port.centre, { x: 640, y: 480 });
});

/** The share of the view that the image covers. */
function share({ view, image, origin, scale }) {
  const seen = (start, size, room) => Math.max(0, Math.min(start + size * scale, room) - Math.max(start, 0));
  return (seen(origin.x, image.width, view.width) * seen(origin.y, image.height, view.height)) / (view.width * view.height);
}

test("at first a picture has 60 % of the screen or more, and all of what fits is shown", () => {
  for (const [image, view, wanted] of [
    [[1280, 720], [360, 640], 0.6], [[640, 480], [360, 640], 0.6], [[720, 1280], [360, 640], 1], [[1280, 720], [640, 360], 1],
    [[1280, 720], [820, 1180], 0.6], [[1280, 720], [1440, 900], 0.9], [[640, 480], [1440, 900], 1200 / 1440], [[720, 1280], [640, 360], 0.6],
  ]) {
    const port = viewport(image, view);
    near(share(port), wanted, 1e-6);
    port.showWhole();
    assert.equal(port.zoom, 1);
    port.fill();
    near(share(port), wanted, 1e-6);
  }
});

test("a filled picture is moved as little as keeps the target away from the border, until somebody zooms or pans", () => {
  const port = viewport([1280, 720], [360, 640]);
  port.setInsets(44, 116);
  const before = port.centre.x;
  port.keepInView({ x: 600, y: 300, width: 40, height: 40 });
  near(port.centre.x, before);
  for (const x of [0, 200, 1000, 1240]) {
    port.keepInView({ x, y: 300, width: 40, height: 40 });
    const left = port.toView({ x, y: 0 }).x, right = port.toView({ x: x + 40, y: 0 }).x;
    assert.ok(left >= -1e-6 && right <= 360 + 1e-6);
    if (x === 200 || x === 1000) assert.ok(left >= 71 && right <= 289);
  }
  const { origin, scale } = port;
  assert.ok(origin.y >= 44 && origin.y + 720 * scale <= 640 - 116 + 1e-6);
  port.pan(30, 0);
  const kept = port.centre.x;
  port.keepInView({ x: 0, y: 300, width: 40, height: 40 });
  near(port.centre.x, kept);
});

test("the picture lies between what stands at the top and at the bottom where there is room, and beneath it where there is none", () => {
  const tall = viewport([1280, 720], [360, 640]), wide = viewport([1280, 720], [1440, 900]);
  for (const port of [tall, wide]) port.setInsets(50, 100);
  assert.ok(tall.origin.y >= 50 && tall.origin.y + 384 <= 540 + 1e-6);
  assert.ok(wide.origin.y >= 0 && wide.origin.y + 810 <= 900 + 1e-6);
});

test("the lens is never under the finger nor outside the view", () => {
  const view = { width: 360, height: 400 };
  for (let x = 0; x <= view.width; x += 5) {
    for (let y = 0; y <= view.height; y += 5) {
      const place = lensPlace({ x, y }, view);
      assert.ok(Math.hypot(place.x - x, place.y - y) > LENS_RADIUS_PX * 0.9, `${x}, ${y}`);
      assert.ok(place.x >= LENS_RADIUS_PX && place.x <= view.width - LENS_RADIUS_PX);
      assert.ok(place.y >= LENS_RADIUS_PX && place.y <= view.height - LENS_RADIUS_PX);
    }
  }
});

test("the lens covers no corner of what is drawn where there is room beside it", () => {
  const radius = LENS_RADIUS_PX;
  for (const view of [{ width: 360, height: 400 }, { width: 520, height: 310 }]) {
    for (let x = 0; x <= view.width; x += 10) {
      for (let y = 0; y <= view.height; y += 10) {
        for (const [width, height] of [[12, 8], [40, 30], [90, 60]]) {
          for (const [dx, dy] of [[0, 0], [1, 0], [0, 1], [1, 1]]) {
            const box = { x: x - dx * width, y: y - dy * height, width, height };
            const place = lensPlace({ x, y }, view, box);
            for (const [cx, cy] of [[x, y], [box.x + (1 - dx) * width, box.y + (1 - dy) * height]]) {
              assert.ok(Math.hypot(place.x - cx, place.y - cy) >= radius - 1e-9, `${x}, ${y}, ${width}, ${dx}, ${dy}: ${place.x}, ${place.y}`);
            }
          }
        }
      }
    }
  }
});

test("the lens enlarges 4 to 8 times", () => {
  assert.equal(lensZoom(2), 4);
  assert.equal(lensZoom(1), 4);
  near(lensZoom(0.8), 5);
  assert.equal(lensZoom(0.28), 8);
});
