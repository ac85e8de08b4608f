// Faults by which the page may show outdated information. Finds the one root cause and what it makes grey. Uses no DOM.

/** The parts of the page that are unreliable by each root cause, and so become grey. */
export const GREY = {
  link: ["badge", "box", "presence", "age", "gimbal"],
  camera: ["badge", "box", "presence", "age", "gimbal"],
  tracker: ["badge", "box", "presence", "gimbal"],
  picture: ["box", "age"],
  gimbal: ["gimbal"],
  // Everything shown is up to date, but may mislead.
  restarted: [],
  frozen: [],
};
const OLD_S = 1;

/**
 * The root cause as {id, title, text, seconds}, null if there is no fault. `id` is a key of GREY; `seconds` is for how long
 * the fault has lasted, or null.
 *
 * `refused`: why the server refused the page, or "". `linkS`: for how long the link has been silent, s; null if it is not,
 * Infinity if no message has arrived yet. `status`: the server's last status message, or null; `sinceS`: its age, s.
 * `pictureS`: age of the picture shown, s; null without a picture. `gimbal`: the gimbal's fault {title, text, seconds}, or null.
 */
export function rootCause({ refused, linkS, status, sinceS, pictureS, gimbal }) {
  if (refused) return cause("link", "NOT ADMITTED", refused);
  if (linkS !== null) return cause("link", "NO LINK", Number.isFinite(linkS) ? "nothing arrives, nothing can be sent" : "no answer yet", linkS);
  if (!status) return null;
  const { camera, tracker, picture } = status;
  const imageS = status.image_silent_s + sinceS;
  if (picture) return cause(tracker === "alive" ? "picture" : "camera", "NO PICTURE", picture);
  if (camera === "stopped") return cause("camera", pictureS === null ? "NO PICTURE" : "CAMERA STOPPED", status.missing || "no images arrive", imageS);
  if (status.trackers?.length > 1) return cause("tracker", "TWO TRACKERS", `several trackers answer: ${status.trackers.join(", ")}; end all but one`);
  if (tracker === "inactive") return cause("tracker", "TRACKER INACTIVE", "it runs but was not activated");
  if (tracker === "silent") return cause("tracker", "TRACKER SILENT", "images arrive, no answer from the tracker", status.tracker_silent_s + sinceS);
  if (status.restarted) return cause("restarted", "TRACKER RESTARTED", "it has forgotten the target; draw it again");
  if (camera === "unseen") return cause("picture", pictureS === null ? "NO PICTURE" : "PICTURE STOPPED", `the tracker has images, the page gets none${status.missing && `: ${status.missing}`}`, imageS);
  // Only a status with newer images proves that the link is slow. Until then the camera may have stopped.
  if (pictureS > OLD_S) return cause("picture", "PICTURE OLD", camera === "alive" && imageS < pictureS - OLD_S / 2 ? "the link is slow" : "", pictureS);
  if (status.frozen_s) return cause("frozen", "PICTURE FROZEN", "not one pixel changes although images arrive; check the camera", status.frozen_s + sinceS);
  return gimbal && cause("gimbal", gimbal.title, gimbal.text, gimbal.seconds);
}

function cause(id, title, text, seconds = null) {
  return { id, title, text, seconds: Number.isFinite(seconds) ? seconds : null };
}
