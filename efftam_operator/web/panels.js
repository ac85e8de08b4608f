// The texts over the picture: banners for what lasts, questions about what is drawn. No DOM.

/**
 * The banners as {id: {title, text, seconds?, action?}}, the most urgent first. Takes `over`, the server's text at its end;
 * `cause` of `causes.js`; `gimbal` and `control`, the panel's `fault` and `lostControl`; `isSteered`: the gimbal follows, as far as is known; `alarm` of `alarm.js`; `held`, why the picture stands still without a countdown, or
 * ""; `isSmall`; `holder`, who is in control where this page is not, or null.
 */
export function bannersOf({ over, cause, gimbal, control = null, isSteered = false, alarm, held, isSmall, holder }) {
  if (over) return { over: { title: "OVER", text: over } };
  if (cause?.id === "link") return { link: cause };
  const banners = {};
  // What moves the gimbal fails on its own, whatever the camera does: it comes first.
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
 * What is asked of a drawing as {text, send, point?, add?}: `send` is the label of the button that sends it, null for none; null
 * where nothing is asked. `asked` as `choicesOf` gives it.
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

/** The same of the place where the lost target may be. */
export const likelyQuestion = (isSteering) => ({ text: `Is this the lost target?${isSteering ? " The gimbal will turn to it" : ""}`, send: "Follow it" });

/** The same of a target that was pressed long or taken from the list. */
export function menuQuestion(target, isSteering, mayRemove) {
  const turns = isSteering && !target.steered;
  return {
    text: `Target ${target.id}: ${turns && !mayRemove ? "the gimbal is steered and will turn to it" : target.state}`,
    send: target.steered ? null : turns ? "Turn to it" : "Steer by it",
    remove: mayRemove,
  };
}
