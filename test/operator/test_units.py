"""The parts of the server that need no socket: wire, seat, credit, pictures and tracks."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from contrast import contrast
from exif_jpeg import jpeg_with_exif
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from efftam_operator import jpeg, wire
from efftam_operator.feed import Picture
from efftam_operator.pairing import (
    FORGOTTEN_S,
    LEVEL_S,
    MAX_TRACKS,
    MOTION_WAIT_S,
    Tracks,
    WaitingPictures,
)
from efftam_operator.settings import Settings
from efftam_operator.viewer import MAX_RECENT_BYTES, Lateness, RateLimit, Viewer
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.images.palette import STATE_STYLES
from efftam_ros.messages.reports import BoxReport, MotionReport

STAMPS = st.integers(0, 2**63 - 1)
ROOT = Path(__file__).parents[2]


# Wire


def test_a_frame_s_header_byte_by_byte():
    data = wire.frame(b"JPEG", (1280, 720), stamp_ns=0x0102030405060708, sent_ns=9, seq=812)
    stamp, sent = bytes([8, 7, 6, 5, 4, 3, 2, 1]), bytes([9, 0, 0, 0, 0, 0, 0, 0])
    size = bytes([0, 5, 0xD0, 2])
    assert data == b"EFTM" + bytes([1, 1]) + size + stamp + sent + bytes([0x2C, 3, 0, 0]) + b"JPEG"
    assert wire.HEADER.size == 30


sides = st.floats(0.1, 1e4)


@given(STAMPS, st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), sides, sides))
def test_a_selection_arrives_as_it_was_sent(stamp, box):
    points, labels = (box[:2], box[2:]), (1, 0)
    for drawn in ({"kind": "box", "box": box}, {"kind": "points", "points": points, "labels": labels}):
        message = wire.parse(json.dumps({"op": "select", "id": "a" * 64, "stamp": str(stamp), **drawn}))
        assert message.selection.stamp_ns == stamp
        if drawn["kind"] == "box":
            assert message.selection.box == Box(*box)
        else:
            assert (message.selection.points, message.selection.labels) == (points, labels)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=6,
)
fields = st.sampled_from(["id", "stamp", "kind", "box", "points", "labels", "target", "seq", "t", "action"])


@examples(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*wire.FIELDS, ""]) | st.text(), st.dictionaries(fields, json_values))
def test_whatever_is_sent_is_a_message_or_a_refusal_of_one_line(op, data):
    assert_parsed_or_refused(json.dumps({"op": op, **data}))
    assert_parsed_or_refused(op)


def assert_parsed_or_refused(text):
    refusal = ""
    try:
        wire.parse(text)
    except wire.MessageError as refused:
        refusal = str(refused)
    assert len(refusal) < 300
    assert "\n" not in refusal


ABSURD = [
    "9" * 5000,
    '"' + "9" * 5000 + '"',
    "1e999",
    "[" * 900 + "]" * 900,
    '"' + "\\u0000" * 5000 + '"',
    "[1e308,1e308]",
]


@pytest.mark.parametrize("op", wire.FIELDS)
@pytest.mark.parametrize("absurd", ABSURD, ids=range(len(ABSURD)))
def test_absurd_sizes_in_any_field_are_refused_in_one_line(op, absurd):
    for name in (
        "id",
        "stamp",
        "kind",
        "box",
        "points",
        "labels",
        "target",
        "seq",
        "t",
        "action",
        "token",
        "turns",
    ):
        good = {"op": op, "id": "a", "stamp": "1", "kind": "box", "box": [1, 2, 3, 4], "points": [[1, 2]]}
        good |= {"labels": [1], "target": 1, "seq": 1, "t": 1, "token": "", "turns": True}
        for kind in ("box", "points"):
            fields = json.dumps({**good, "kind": kind, name: "ABSURD"})
            assert_parsed_or_refused(fields.replace('"ABSURD"', absurd))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"stamp": 1795298319517108788}, "stamp"),
        ({"stamp": "-1"}, "stamp"),
        ({"stamp": "9223372036854775808"}, "9223372036854775807"),
        ({"box": [1, 2, 0, 4]}, "0 x 4"),
        ({"box": [1, 2, 3]}, "4"),
        ({"box": [1, 2, 3, 1e9]}, "65536"),
        ({"box": [1, 2, 3, True]}, "4"),
        ({"target": 256}, "255"),
        ({"kind": "mask"}, "box or points"),
        ({"kind": "points", "points": []}, "16"),
        ({"kind": "points", "points": [[1, 2]], "labels": [2]}, "labels"),
        ({"kind": "points", "points": [[1, 2], [3, 4]], "labels": [1, 2]}, "labels"),
        ({"id": "x" * 65}, "64"),
    ],
)
def test_each_wrong_field_is_named_with_its_limit(change, named):
    message = {"op": "select", "id": "a", "stamp": "1", "kind": "box", "box": [1, 2, 3, 4], **change}
    with pytest.raises(wire.MessageError, match=named):
        wire.parse(json.dumps(message))


# Settings


def test_the_limits_are_those_that_the_guide_names():
    limits = Settings()
    text = " ".join((ROOT / "docs" / "operator.md").read_text().split())
    assert f"{limits.largest_message / 1024:g} kB per message" in text
    assert f"{limits.messages_per_s:g} messages per second" in text
    assert f"{limits.selections_per_s:g} selections per second" in text
    assert f"at most {limits.most_viewers} pages" in text
    assert f"its page is closed or silent for {limits.lease_s:g} s" in text
    assert (limits.address, limits.port, limits.on_operator_lost) == ("127.0.0.1", 8080, "keep")


# Limits of a page


def test_a_rate_limit_is_full_at_first_and_refills():
    limit = RateLimit(5)
    assert [limit.allows(0.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert not any(limit.allows(now_s) for now_s in (0.05, 0.1, 0.15))  # asking in vain earns nothing
    assert limit.allows(0.21)
    assert not limit.allows(0.21)


def test_a_message_is_late_by_what_its_way_took_longer_than_the_quickest():
    lateness = Lateness()
    assert lateness.late_s(5_000.0, 1000.2) == 0
    assert lateness.late_s(6_000.0, 1001.1) == pytest.approx(0)
    assert lateness.late_s(7_000.0, 1009.1) == pytest.approx(7.0, abs=0.01)
    assert lateness.late_s(math.nan, 1009.1) == 0


def test_clocks_that_drift_apart_make_nothing_late():
    lateness = Lateness()
    assert max(lateness.late_s(s * 0.9995e3, float(s)) for s in range(0, 86_400, 60)) < 1


async def test_on_a_thin_link_the_newest_track_alone_is_sent_with_the_next_picture():
    sent = []

    async def send(message) -> None:
        sent.append(message)

    socket = SimpleNamespace(send_str=send, send_bytes=send)
    viewer = Viewer(socket, "page", Settings())
    sending = asyncio.create_task(viewer.send_waiting())
    for is_thin, wanted in ((False, ["1", "2"]), (True, []), (True, [])):
        sent.clear()
        viewer.pace = SimpleNamespace(is_thin=is_thin, sent=lambda *_: None)
        for text in ("1", "2"):
            viewer.track(text)
        await asyncio.sleep(0.01)
        assert sent == wanted
    viewer.is_hidden = True
    viewer.track("3")
    viewer.show(b"jpeg", 1, "2", Picture(1, jpeg=b"jpeg"), 64)
    await asyncio.sleep(0.01)
    assert sent == ["2", b"jpeg"]
    sending.cancel()


def test_pictures_are_kept_to_be_sent_whole_within_their_memory_and_go_one_at_a_time():
    viewer = Viewer(None, "page", Settings())
    for seq in range(1, 6):
        kept = Picture(seq, jpeg=b"jpeg", nbytes=MAX_RECENT_BYTES // 4)
        viewer.show(b"jpeg", seq, None, kept, 64)
        viewer.acknowledged(seq)

    def wanted(stamp: int) -> int | None:
        viewer.want(stamp)
        return viewer.wanted and viewer.wanted.stamp_ns

    assert [wanted(stamp) for stamp in (1, 5, 2)] == [None, 5, 2]
    for made, is_fetching in ((b"jpeg", True), (None, False)):
        assert not viewer.can_take(9, viewer.pace.level)
        viewer.show_whole(made)
        assert viewer.can_take(9, viewer.pace.level) is not is_fetching
        assert wanted(3) == (None if is_fetching else 3)
        viewer.acknowledged(wire.WHOLE_SEQ)
        assert wanted(4) == 4


# A camera's JPEG


SCENE = np.random.default_rng(1).integers(0, 255, (24, 48, 3), np.uint8)


def decoded(data: bytes, flags: int = cv2.IMREAD_COLOR) -> np.ndarray:
    """As a browser does: turned by the EXIF."""
    return cv2.imdecode(np.frombuffer(data, np.uint8), flags)


@pytest.mark.parametrize("width", [None, 24, 60])
@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_s_orientation_is_not_for_the_browser(orientation, big_endian, width):
    turned = jpeg_with_exif(SCENE, orientation, big_endian=big_endian)
    made, size = jpeg.encode(Picture(1, jpeg=turned), quality=100, width=width)
    assert size == (48, 24)
    seen = decoded(made)
    assert seen.shape == ((12, 24, 3) if width == 24 else (24, 48, 3))
    if width is None:
        raw = decoded(turned, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        assert np.abs(seen.astype(int) - raw).mean() < 6


def test_a_jpeg_without_exif_is_passed_on_and_a_broken_one_with_it_is_refused():
    plain = cv2.imencode(".jpg", SCENE)[1].tobytes()
    assert jpeg.encode(Picture(1, jpeg=plain))[0] is plain
    with pytest.raises(InputError, match="JPEG"):
        jpeg.encode(Picture(1, jpeg=jpeg_with_exif(SCENE, 6)[:60]))


# Pictures and tracks


def report(stamp, target=0):
    return BoxReport(stamp, target, TrackState.TRACKING, image_size=(64, 48))


def picture(stamp, nbytes=0):
    return Picture(stamp, jpeg=b"jpeg", nbytes=nbytes)


@given(st.permutations(["box", "other box", "motion", "other motion"]))
def test_the_reports_of_an_image_may_come_in_any_order(order):
    tracks, told = Tracks(), []
    for part in order:
        target = int(part.startswith("other"))
        if part.endswith("box"):
            tracks.add_box(report(7, target), 0.0)
        else:
            tracks.add_motion(MotionReport(7, target), 0.0)
        told += tracks.finished(0.0, 1.0)
    assert told[-1][0] == 7
    assert all("velocity" in target for target in json.loads(told[-1][1])["targets"])


def test_a_box_waits_a_moment_for_its_motion_and_no_longer():
    tracks = Tracks()
    tracks.add_box(report(7), 1.0)
    assert tracks.finished(1.0 + MOTION_WAIT_S / 2, 1.0) == []
    assert tracks.is_waiting
    assert [stamp for stamp, _ in tracks.finished(1.0 + MOTION_WAIT_S, 1.0)] == [7]
    tracks.add_motion(MotionReport(7), 1.1)
    assert not tracks.is_waiting


@pytest.mark.parametrize(("ms", "told"), [(12.34, 12.3), (-5.0, -5.0), (1e8, None), (-1e8, None)])
def test_stamps_of_another_clock_tell_no_latency(ms, told):
    tracks = Tracks()
    tracks.add_box(report(7), 1.0)
    ((_, text),) = tracks.finished(1.0 + MOTION_WAIT_S, ms)
    assert json.loads(text)["latency_ms"] == told


def test_a_target_without_a_turn_in_an_image_is_told_with_its_last_box_and_how_old_that_is():
    tracks = Tracks()
    for stamp, targets in ((1_000_000_000, (0, 1)), (1_500_000_000, (0,))):
        for target in targets:
            tracks.add_motion(MotionReport(stamp, target), stamp / 1e9)
            tracks.add_box(report(stamp, target), stamp / 1e9)
        told = tracks.finished(stamp / 1e9 + MOTION_WAIT_S, 1.0)
    ((stamp, text),) = told
    assert stamp == 1_500_000_000
    assert [(t["id"], t["behind_s"]) for t in json.loads(text)["targets"]] == [(0, 0.0), (1, 0.5)]


@pytest.mark.parametrize("end", ["IDLE", "silence"])
def test_a_target_that_ended_is_told_no_more(end):
    tracks = Tracks()
    for target in (0, 1):
        tracks.add_box(report(1, target), 0.0)
    tracks.finished(1.0, 1.0)
    if end == "IDLE":
        tracks.add_box(BoxReport(2, 1, image_size=(64, 48), steered=False), 1.0)
    tracks.add_box(report(3), FORGOTTEN_S)
    *_, (_, text) = tracks.finished(2 * FORGOTTEN_S - 1.0 if end == "IDLE" else FORGOTTEN_S + 1.0, 1.0)
    assert [t["id"] for t in json.loads(text)["targets"]] == [0]


def test_the_box_of_an_earlier_selection_is_not_where_this_target_was_last():
    tracks = Tracks()

    def told(stamp: int, selection: int, box: Box | None) -> object:
        state = TrackState.LOST if box is None else TrackState.TRACKING
        tracks.add_box(BoxReport(stamp, state=state, selection=selection, box=box), stamp)
        ((_, text),) = tracks.finished(stamp + MOTION_WAIT_S, 0.0)
        return json.loads(text)["targets"][0]["last"]

    assert told(1, 1, Box(1.0, 2.0, 3.0, 4.0)) is None  # it is seen
    assert told(2, 1, None) == [1.0, 2.0, 3.0, 4.0]
    assert told(3, 2, None) is None


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=8))
def test_the_steered_target_is_the_last_that_was_said_to_be_and_has_not_ended(reports):
    tracks, steered = Tracks(), None
    for stamp, (target, is_steered, has_ended) in enumerate(reports):
        state = TrackState.IDLE if has_ended else TrackState.TRACKING
        tracks.add_box(BoxReport(stamp, target, state, steered=is_steered), 0.0)
        if is_steered:
            steered = None if has_ended else target
        elif steered == target:
            steered = None
        assert tracks.steered == steered


def test_motions_alone_do_not_fill_the_memory():
    tracks = Tracks()
    for stamp in range(1000):
        tracks.add_motion(MotionReport(stamp), 0.0)
    assert len(tracks._open) <= MAX_TRACKS


def shown(pictures, *at_s):
    return [p and p.stamp_ns for p in (pictures.newest(now_s) for now_s in at_s)]


def level_pictures(*stamps):
    """Pictures of a tracker that is level, arrived at 0 s."""
    pictures = WaitingPictures()
    pictures.forget(0.0)
    for stamp in stamps:
        pictures.add(picture(stamp), 0.0)
    return pictures


def test_a_picture_is_shown_with_its_answer_while_the_tracker_is_level():
    pictures = level_pictures(1, 2, 3)
    assert shown(pictures, 0.05) == [None]
    for stamp in (1, 2):
        pictures.answered(stamp, 0.06)
    assert shown(pictures, 0.06, 0.07) == [2, None]
    pictures.answered(3, 0.08)
    assert shown(pictures, 0.08) == [3]


def test_an_answer_may_come_before_its_picture():
    pictures = level_pictures(1)
    pictures.answered(2, 0.01)
    pictures.add(picture(2), 0.02)
    assert shown(pictures, 0.02) == [2]


def test_a_picture_without_an_answer_waits_no_longer_than_a_level_tracker_takes():
    pictures = level_pictures(1)
    assert shown(pictures, LEVEL_S - 0.01, LEVEL_S) == [None, 1]


def test_a_tracker_that_is_behind_keeps_no_picture_back_until_it_is_level_again():
    pictures = level_pictures(*range(1, 30))
    pictures.answered(3, 1.0)
    assert shown(pictures, 1.0) == [29]
    pictures.add(picture(30), 1.1)
    assert shown(pictures, 1.1) == [30]
    pictures.answered(30, 1.12)
    pictures.add(picture(31), 1.13)
    assert shown(pictures, 1.13) == [None]


def test_an_answer_to_an_image_of_long_ago_is_of_a_tracker_that_is_behind():
    pictures = level_pictures(100)
    pictures.answered(5, 0.01)
    assert shown(pictures, 0.01) == [100]


def test_pictures_that_waited_when_nobody_looked_any_more_are_not_shown_to_who_looks_next():
    pictures = level_pictures(1)
    pictures.forget(5.0)
    assert shown(pictures, 6.0) == [None]


def test_a_dead_tracker_keeps_no_picture_back():
    pictures = level_pictures(1)
    pictures.newest(0.2)
    pictures.add(picture(2), 0.6)
    assert shown(pictures, 0.6) == [2]


def test_waiting_pictures_have_a_limit_in_bytes():
    pictures = level_pictures()
    for stamp in range(1, 101):
        pictures.add(picture(stamp, nbytes=8 * 2**20), 0.0)
    assert len(pictures._waiting) == 8
    assert shown(pictures, LEVEL_S) == [100]


def test_stamps_that_go_back_are_shown_in_order_of_arrival():
    pictures = level_pictures(1000, 1)
    pictures.answered(1000, 0.01)
    pictures.answered(1, 0.02)
    assert shown(pictures, 0.02) == [1]


# Palette and settings


def test_each_state_has_a_colour_and_a_line_of_its_own():
    assert set(STATE_STYLES) == set(TrackState)
    assert len({style.rgb for style in STATE_STYLES.values()}) == len(TrackState)
    assert len({style.line for style in STATE_STYLES.values()}) == len(TrackState)


@pytest.mark.parametrize("state", list(TrackState), ids=lambda s: s.name)
def test_black_words_on_a_state_s_colour_can_be_read(state):
    assert contrast(STATE_STYLES[state].rgb, (0, 0, 0)) >= 4.5


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"port": 70000}, "65535"),
        ({"jpeg_quality": 0}, "1, 100"),
        ({"on_operator_lost": "land"}, "keep, clear"),
        ({"lease_s": 0.0}, "3600"),
        ({"certificate": "x"}, "both"),
    ],
)
def test_settings_out_of_range_are_refused_with_the_limits(change, named):
    with pytest.raises(InputError, match=named):
        Settings(**change)
