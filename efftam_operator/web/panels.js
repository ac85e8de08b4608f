// The texts over the picture: banners on lasting conditions, and questions about a drawing. Uses no DOM.

/**
 * The banners as {id: {title, text, seconds?, action?, isAlarm?, isGood?}}, the most urgent first. `action`: label of its
 * button.
 *
 * `over`: the server's text after its end, or "". `cause`: as `rootCause` returns it. `gimbal`, `control`: `fault` and
 * `lostControl` of the `SteeringPanel`. `isSteered`: whether the gimbal is steered, as last reported. `alarm`: as
 * `Alarm.banner` returns it. `held`: why the picture is frozen without a countdown, or "". `isSmall`: whether pictures are
 * reduced for a slow link. `holder`: name of the page in control if this page is not, else null.
 */
export function bannersOf({ over, cause, gimbal, control = null, isSteered = false, alarm, held, isSmall, holder }) {
  if (over) return { over: { title: "OVER", text: over } };
  if (cause?.id === "link") return { link: cause };
  const banners = {};
  // Faults of the gimbal are independent of those of the camera, and more urgent.
  if (control) banners.control = { ...control, isAlarm: true };
  if (gimbal) banners.gimbal = { ...gimbal, isAlarm: isSteered || gimbal.title.startsWith("STOP") };
  if (alarm) banners.alarm = { ...alarm, isAlarm: true };
  if (cause && cause.id !== "gimbal") banners[cause.id] = cause;
  if (held) banners.held = { title: "FROZEN", text: held };
  if (isSmall && !cause && !gimbal) banners.small = { title: "small picture:", text: "slow link" };
  if (holder !== null) banners.view = { title: "VIEW ONLY", text: `${holder} is in control`, action: "Take over" };
  return banners;
}

/**
 * The question to the user about a drawing, as {text, send, point?, add?}; null if there is none. `send`: label of the button
 * that sends the selection, null: no such button. `point`, `add`: whether the buttons Point and Add are shown.
 *
 * The first argument is a `Drawing`; `asked`: the choices as `choicesOf` returns them; `byKeys`: the user uses the keyboard.
 */
export function drawingQuestion({ mode, isKeyed, isBetweenTaps }, asked, byKeys) {
  if (mode === "corner") {
    const text = !byKeys ? "Tap again to take this point, or tap the opposite corner of a box" : isKeyed ? "Arrows draw the box, Enter sends it" : "Enter again takes this point; arrows draw a box from here";
    return { text, send: null, point: true };
  }
  if (mode === "proposed") return { text: `Follow this? ${byKeys ? "Enter; arrows draw another box" : "Tap it, or the opposite corner of another box"}`, send: "Follow", point: true };
  if (mode === "placed") return { text: isBetweenTaps ? "A box between the two taps?" : "Move the box with the arrows, then send it", send: "Send", point: isBetweenTaps };
  if (mode !== "asked") return null;
  const { replaces, turns, mayReplace, mayAdd, addTurns } = asked;
  const turn = "The gimbal is steered: it will turn to this";
  if (!mayAdd) return turns ? { text: turn, send: "Turn to it" } : { text: "Follow this instead?", send: "Replace" };
  if (!mayReplace) return { text: `Follow this as well?${addTurns ? ` ${turn}` : ""}`, send: null, add: true };
  if (!replaces && turns) return { text: turn, send: "Turn to it", add: true };
  return { text: `Follow this instead${turns ? " (the gimbal will turn to it)" : ""}, or as well?`, send: "Replace", add: true };
}

/** The question whether the proposed box is the lost target. `isSteering`: the gimbal is steered. Returns {text, send}. */
export const likelyQuestion = (isSteering) => ({ text: `Is this the lost target?${isSteering ? " The gimbal will turn to it" : ""}`, send: "Follow it" });

/** The question about a target that was pressed long or chosen in the list, as {text, send, remove}. `isSteering`: the gimbal
 * is steered. `mayRemove`: whether the button Remove is shown. */
export function menuQuestion(target, isSteering, mayRemove) {
  const turns = isSteering && !target.steered;
  return {
    text: `Target ${target.id}: ${turns && !mayRemove ? "the gimbal is steered and will turn to it" : target.state}`,
    send: target.steered ? null : turns ? "Turn to it" : "Steer by it",
    remove: mayRemove,
  };
}
