// Turns the events of mouse, touch and pen on the picture into drawing, zooming and panning, and calls actions for keys.

// A press that moves by more than TAP_PX is a drag, else a tap. If it lasts longer than TAP_MS, a move by more than STILL_PX
// already makes it a drag.
const TAP_PX = { mouse: 6, touch: 14, pen: 10 };
const STILL_PX = 4, TAP_MS = 250;
// A press of at least LONG_MS that moves by at most LONG_PX is a long press.
const LONG_MS = 600, LONG_PX = 8;
const WHEEL_STEP = 1.0015;

/**
 * Bind the pointer events of `canvas`. One finger draws, two fingers zoom and pan. The wheel zooms. The right or middle
 * button pans, and so does the left button with Shift. `viewport` is zoomed and panned here.
 *
 * `actions` has press(point, kind), which returns whether a drawing begins; move(point); release(point, far, tapPx, isLong);
 * abandon(); and hover(point). Points are in px of the view. `kind`: "mouse", "touch" or "pen". `far`: the press was a drag.
 * `tapPx`: the farthest that a tap of this kind moves. `isLong`: it was a long press.
 */
export function bindPointer(canvas, viewport, actions) {
  // The fingers on the screen: pointerId -> {x, y}.
  const down = new Map();
  // The press that draws, as {id, x, y, kind, ms, far}; null: none.
  let drawing = null;
  let panning = null;

  const place = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const limit = (kind) => TAP_PX[kind] ?? TAP_PX.mouse;
  const isFar = (event, at) => {
    const way = Math.hypot(at.x - drawing.x, at.y - drawing.y);
    return drawing.far || way > limit(drawing.kind) || (way > STILL_PX && event.timeStamp - drawing.ms > TAP_MS);
  };

  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    viewport.zoomAt(WHEEL_STEP ** (-event.deltaY * lines), place(event));
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    const at = place(event);
    document.body.classList.remove("keys");
    canvas.focus({ preventScroll: true });
    // Capturing throws if the pointer was released already. The press still counts.
    try { canvas.setPointerCapture(event.pointerId); } catch {}
    if (event.pointerType === "touch") down.set(event.pointerId, at);
    if (down.size > 1) {
      if (drawing) actions.abandon();
      drawing = null;
      return;
    }
    if (event.button !== 0 || event.shiftKey) {
      panning = { id: event.pointerId, ...at };
      return;
    }
    if (drawing) return;
    if (actions.press(at, event.pointerType)) {
      drawing = { id: event.pointerId, kind: event.pointerType, ms: event.timeStamp, far: false, ...at };
    }
  });

  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (down.has(event.pointerId) && down.size > 1) {
      pinch(down, event.pointerId, at, viewport);
    } else if (panning?.id === event.pointerId) {
      viewport.pan(at.x - panning.x, at.y - panning.y);
      panning = { id: event.pointerId, ...at };
    } else if (drawing?.id === event.pointerId) {
      drawing.far = isFar(event, at);
      actions.move(at);
    } else if (!drawing) {
      actions.hover(at);
    }
    if (down.has(event.pointerId)) down.set(event.pointerId, at);
  });

  canvas.addEventListener("pointerup", (event) => {
    down.delete(event.pointerId);
    if (panning?.id === event.pointerId) panning = null;
    if (drawing?.id !== event.pointerId) return;
    // A small move of a finger may be reported only by the event of its release.
    const at = place(event), far = isFar(event, at), { kind, ms, x, y } = drawing;
    const isLong = event.timeStamp - ms >= LONG_MS && Math.hypot(at.x - x, at.y - y) <= LONG_PX;
    drawing = null;
    actions.release(at, far, limit(kind), isLong);
  });

  canvas.addEventListener("pointercancel", (event) => {
    down.delete(event.pointerId);
    if (panning?.id === event.pointerId) panning = null;
    if (drawing?.id === event.pointerId) {
      drawing = null;
      actions.abandon();
    }
  });
}

function pinch(down, id, at, viewport) {
  const before = down.get(id);
  const other = [...down].find(([key]) => key !== id)[1];
  const middle = { x: (at.x + other.x) / 2, y: (at.y + other.y) / 2 };
  const factor = Math.hypot(at.x - other.x, at.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
  viewport.zoomAt(factor, middle);
  viewport.pan((at.x - before.x) / 2, (at.y - before.y) / 2);
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * Bind the keyboard. `keys`: the action for each key name. `arrow(dx, dy)`: the action for arrow keys, in image px.
 * Space and Enter press a button that has the focus instead. While a dialog is open, only the keys in `always` act; in a text
 * field none does. The body has the class `keys` from a key press until the next pointer press.
 */
export function bindKeys(keys, arrow, always = []) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.target.closest("input") || (document.querySelector("dialog[open]") && !always.includes(name))) return;
    document.body.classList.add("keys");
    if (event.target.closest("button, summary") && [" ", "Enter"].includes(event.key)) return;
    const step = ARROWS[event.key];
    if (step) {
      const size = event.shiftKey ? 10 : 1;
      arrow(step[0] * size, step[1] * size);
    } else {
      const action = keys[name];
      if (!action || event.repeat) return;
      action();
    }
    event.preventDefault();
  });
}
