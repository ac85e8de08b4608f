import assert from "node:assert/strict";
import { test } from "node:test";
import { GREY, rootCause } from "../../../efftam_operator/web/causes.js";
import { Notices } from "../../../efftam_operator/web/notices.js";
import { bannersOf } from "../../../efftam_operator/web/panels.js";

const textsOf = (notices, nowMs) => notices.shown(nowMs).map(({ text }) => text);

test("a newer text on a subject replaces the older, and others stay", () => {
  const notices = new Notices();
  notices.add("gimbal", "steering", false, 0);
  notices.add("target", "following selection 3", false, 10);
  notices.add("gimbal", "stopped", false, 20);
  assert.deepEqual(textsOf(notices, 30), ["stopped", "following selection 3"]);
});

test("a notice dies with its truth, or after six seconds", () => {
  const notices = new Notices();
  notices.add("control", "page 2 is in control now", false, 0);
  notices.add("gimbal", "steering", false, 3000);
  notices.retire("control");
  assert.deepEqual(textsOf(notices, 3001), ["steering"]);
  assert.deepEqual(textsOf(notices, 8999), ["steering"]);
  assert.deepEqual(textsOf(notices, 9000), []);
  notices.add("a", "1", false, 0);
  notices.add("b", "2", false, 0);
  notices.retire();
  assert.deepEqual(textsOf(notices, 1), []);
});

test("of four subjects the oldest goes", () => {
  const notices = new Notices();
  for (const subject of ["a", "b", "c", "a", "d"]) notices.add(subject, subject, false, 0);
  assert.deepEqual(textsOf(notices, 1), ["d", "a", "c"]);
});

const STATUS = { camera: "alive", tracker: "alive", picture: "", image_silent_s: 0.03, tracker_silent_s: 0.03 };
const causeAt = (fields) => rootCause({ refused: "", linkS: null, status: STATUS, sinceS: 0, pictureS: 0, gimbal: null, ...fields });

test("what is not known of an old picture is not said", () => {
  // The camera stopped 1.2 s ago, and the server's last status is of before or of after that.
  for (const [silentS, sinceS] of [[0.03, 1.17], [0.95, 0.25]]) {
    const { id, title, text, seconds } = causeAt({ status: { ...STATUS, image_silent_s: silentS }, sinceS, pictureS: 1.2 });
    assert.deepEqual([id, title, text, seconds], ["picture", "PICTURE OLD", "", 1.2]);
  }
  assert.equal(causeAt({ sinceS: 0.3, pictureS: 1.2 }).text, "the link is slow");
  assert.equal(causeAt({ status: { ...STATUS, camera: "stopped", image_silent_s: 1.4 }, pictureS: 1.6 }).title, "CAMERA STOPPED");
  assert.equal(causeAt({ pictureS: null }), null);
  assert.equal(causeAt({ pictureS: 0.9 }), null);
});

test("two trackers on one graph are both named", () => {
  const { id, title, text } = causeAt({ status: { ...STATUS, trackers: ["/a/efftam_tracker", "/efftam_tracker"] } });
  assert.deepEqual([id, title], ["tracker", "TWO TRACKERS"]);
  assert.match(text, /\/a\/efftam_tracker, \/efftam_tracker/);
  assert.equal(causeAt({ status: { ...STATUS, trackers: ["/efftam_tracker"] } }), null);
});

test("a tracker that was started again has forgotten the target, which is said while it is silent no more", () => {
  const told = (fields) => causeAt({ status: { ...STATUS, restarted: true, ...fields } });
  assert.deepEqual([told({}).title, GREY[told({}).id]], ["TRACKER RESTARTED", []]);
  assert.match(told({}).text, /draw it again/);
  assert.equal(told({ tracker: "silent" }).title, "TRACKER SILENT");
  assert.equal(told({ restarted: false }), null);
});

test("a picture in which nothing changes is a warning with its seconds, and takes the truth from nothing", () => {
  const told = (fields) => causeAt({ sinceS: 0.5, status: { ...STATUS, frozen_s: 3.5, ...fields } });
  assert.deepEqual([told({}).title, told({}).seconds, GREY[told({}).id]], ["PICTURE FROZEN", 4, []]);
  assert.equal(told({ camera: "stopped" }).title, "CAMERA STOPPED");
  assert.equal(told({ frozen_s: null }), null);
});

test("a small picture is not told of beside a cause", () => {
  const told = { cause: null, gimbal: null, alarm: null, held: "", isSmall: true, holder: null };
  assert.deepEqual(Object.keys(bannersOf(told)), ["small"]);
  assert.deepEqual(Object.keys(bannersOf({ ...told, cause: causeAt({ pictureS: 1.2 }) })), ["picture"]);
});

test("without a link nothing else is said", () => {
  const cause = causeAt({ linkS: 0 });
  assert.equal(cause.title, "NO LINK");
  assert.deepEqual(bannersOf({ cause, gimbal: cause, alarm: cause, held: "x", isSmall: true, holder: "page 2" }), { link: cause });
});
