"""What a ground station gets from the camera component."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from flight.rig import EPOCH_NS, Desk, Peer, Time, seen_at, status
from hypothesis import given
from hypothesis import strategies as st

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.mavlink.camera import firmware_version
from efftam_flight.mavlink.dialect import Severity, mav
from efftam_flight.mavlink.tracking_status import StreamView
from efftam_flight.values import NS
from efftam_ros.core.types import TrackState
from efftam_ros.messages.bearing import CameraModel, Intrinsics
from efftam_ros.messages.fields import Outcome
from efftam_ros.messages.reports import ResultReport
from efftam_ros.version import __version__
from simulation.autopilots.memory_link import memory_link

NAN = math.nan
RECT, POINT, STOP = 2005, 2004, 2010
REQUEST, REQUEST_OLD, INTERVAL = 512, 521, 511
INFORMATION, STATUS = 259, 275
ACCEPTED, REJECTED, DENIED, UNSUPPORTED, IN_PROGRESS = 0, 1, 2, 3, 5
BOX = (0.4, 0.4, 0.6, 0.6)


class Scene:
    """A bridge, and a ground station on each of its links: the first is ``station``."""

    def __init__(self, links: int = 1, first: tuple[float, ...] = (), **camera: object) -> None:
        """``first``: a command that waits when the bridge begins."""
        self.time = Time()
        ends = [memory_link(f"link {number}", self.time) for number in range(links)]
        self.lines: list[str] = []
        self.desk = Desk()
        config = BridgeConfig(**camera, landing_target=True)  # type: ignore[arg-type]
        self.bridge = Bridge(
            config,
            [here for here, _ in ends],
            self.desk,
            None,  # type: ignore[arg-type]
            self.time.instant,
            lambda severity, text: self.lines.append(text),
        )
        self.stations = [Peer(there, self.time) for _, there in ends]
        self.station = self.stations[0]
        if first:
            self.station.command(*first)  # type: ignore[arg-type]
        self.run(0.1)

    def run(self, seconds: float = 0.1) -> Scene:
        for _ in range(round(seconds / 0.01)):
            self.time.t += 0.01
            self.bridge.step()
        for station in self.stations:
            station.read()
        return self

    def ask(self, number: int, *parameters: float, **how: object) -> list[int]:
        """Send a command; the results that came back within 0.1 s."""
        before = len(self.station.acks(number))
        self.station.command(number, *parameters, **how)  # type: ignore[arg-type]
        self.run()
        return [result for result, _ in self.station.acks(number)[before:]]

    def streamed(self, seconds: float) -> int:
        """How many messages of the tracker's status come in so long."""
        before = len(self.station.of("CAMERA_TRACKING_IMAGE_STATUS"))
        return len(self.run(seconds).station.of("CAMERA_TRACKING_IMAGE_STATUS")) - before

    def last_status(self) -> object:
        return self.station.of("CAMERA_TRACKING_IMAGE_STATUS")[-1]

    def show(self, state: TrackState, **fields: float) -> object:
        self.bridge.track(status(state, EPOCH_NS + round(self.time.t * NS), **fields))
        self.run()
        return self.last_status()


# Who we are


def test_heartbeats_of_a_camera_once_a_second_in_mavlink_2():
    scene = Scene().run(5)
    beats = scene.station.of("HEARTBEAT")
    assert len(beats) in (5, 6)
    assert (beats[0].type, beats[0].autopilot) == (mav.MAV_TYPE_CAMERA, mav.MAV_AUTOPILOT_INVALID)
    assert beats[0].get_msgbuf()[0] == 0xFD
    assert (beats[0].get_srcSystem(), beats[0].get_srcComponent()) == (1, 100)


@pytest.mark.parametrize("ask", [(REQUEST, INFORMATION), (REQUEST_OLD, 1)])
def test_camera_information_by_both_requests_and_without_a_focal_length_where_it_is_not_known(ask):
    scene = Scene(model="Tracker", gimbal_device_id=154)
    lens = Intrinsics(900, 910, 640, 360)
    scene.bridge.set_camera(CameraModel(lens, 1280, 720))
    scene.run(2)
    assert scene.ask(*ask) == [ACCEPTED]
    info = scene.station.of("CAMERA_INFORMATION")[0]
    assert bytes(info.model_name).rstrip(b"\0") == b"Tracker"
    assert info.flags == 512 | 1024 | 2048
    assert info.firmware_version == firmware_version(__version__)
    assert (info.resolution_h, info.resolution_v) == (1280, 720)
    assert info.focal_length / info.sensor_size_h == pytest.approx(900 / 1280)
    assert info.focal_length / info.sensor_size_v == pytest.approx(910 / 720)
    assert info.gimbal_device_id == 154
    assert info.time_boot_ms == pytest.approx(2100, abs=20)
    for known, size in ((None, (640, 480)), (lens, (0, 480)), (lens, (640, 0))):
        scene.bridge.set_camera(CameraModel(known, *size))
        scene.ask(*ask)
        info = scene.station.of("CAMERA_INFORMATION")[-1]
        assert math.isnan(info.focal_length)
        assert (info.resolution_h, info.resolution_v) == size
    (info,) = Scene(first=ask).station.of("CAMERA_INFORMATION")
    assert (info.time_boot_ms, info.resolution_h) == (0, 0)


def test_the_firmware_version_has_its_first_number_lowest():
    assert firmware_version("1.2.3") == 0x00030201
    assert firmware_version("0.1.0rc1") == 0x00010100
    assert firmware_version("2.dev.1") == 0x00010002


@pytest.mark.parametrize(
    ("command", "parameters", "result"),
    [
        *((REQUEST, (message_id,), UNSUPPORTED) for message_id in (269, 271, 277, 31999, NAN)),
        *((400, (275,), UNSUPPORTED), (REQUEST_OLD, (0,), ACCEPTED)),
        *((INTERVAL, of, DENIED) for of in ((277, 1e6), (259, 1e6), (275, NAN), (275, 100.0), (NAN, 1e6))),
    ],
)
def test_messages_that_we_do_not_have_or_stream_are_refused(command, parameters, result):
    scene = Scene()
    assert scene.ask(command, *parameters) == [result]
    assert scene.station.of("CAMERA_INFORMATION") == []


def test_to_a_broadcast_we_answer_only_what_is_ours():
    scene = Scene()
    for number, parameters in ((400, (1,)), (REQUEST, (269,)), (2500, ()), (INTERVAL, (285, 20_000))):
        assert scene.ask(number, *parameters, target=(1, 0)) == []
    assert scene.ask(2500) == [UNSUPPORTED]
    assert scene.ask(REQUEST, INFORMATION, target=(0, 0)) == [ACCEPTED]
    assert scene.ask(INTERVAL, STATUS, 100_000, target=(1, 0)) == [ACCEPTED]
    assert scene.ask(RECT, *BOX, 101.0, target=(1, 0)) == []
    assert scene.ask(RECT, *BOX, target=(1, 0)) == [IN_PROGRESS]
    assert scene.ask(INTERVAL, 285, 20_000) == [DENIED]


@pytest.mark.parametrize("target", [(2, 100), (1, 101), (1, 1), (255, 190)])
def test_commands_for_others_are_not_answered(target):
    scene = Scene()
    assert scene.ask(RECT, *BOX, target=target) == []
    assert scene.desk.requests == []


def test_the_station_reads_when_the_target_is_tracked_with_its_confidence_and_when_it_is_lost():
    scene = Scene()
    tracked = replace(status(TrackState.TRACKING), measured=True, confidence=0.934, target_id=3)
    for answer in (
        status(TrackState.ACQUIRING),
        tracked,
        replace(tracked, state=TrackState.COASTING, measured=False),
        replace(tracked, confidence=0.5),  # the confidence of every image is in `bbox`
        replace(tracked, state=TrackState.LOST, box=None, measured=False),
        replace(tracked, state=TrackState.LOST, box=None, measured=False),
        replace(tracked, confidence=NAN),
        replace(tracked, confidence=0.8, target_id=4, selection=2),  # another target is selected meanwhile
        status(TrackState.IDLE),
        status(TrackState.LOST),
    ):
        scene.bridge.track(answer)
        scene.run()
    texts = scene.station.of("STATUSTEXT")
    assert [text.text for text in texts] == [
        "target 3: TRACKING, confidence 0.93",
        "target 3: LOST",
        "target 3: TRACKING",
        "target 4: TRACKING, confidence 0.80",
    ]
    assert {text.severity for text in texts} == {Severity.NOTICE}


def test_nobody_asking_is_said_once():
    scene = Scene().run(25)
    assert sum("requested" in line for line in scene.lines) == 1
    assert scene.station.of("STATUSTEXT") == []  # it is for the log
    scene = Scene()
    scene.ask(REQUEST, INFORMATION)
    assert not any("asked" in line for line in scene.run(15).lines)


@pytest.mark.parametrize(
    ("ids", "heartbeat", "remedy"),
    [
        ((1, 100), (mav.MAV_TYPE_CAMERA, mav.MAV_AUTOPILOT_INVALID), "component_id"),  # another camera's
        ((7, 1), (mav.MAV_TYPE_QUADROTOR, mav.MAV_AUTOPILOT_ARDUPILOTMEGA), "system_id"),  # another vehicle's
    ],
)
def test_ids_that_do_not_go_with_ours_are_named_once_with_the_remedy(ids, heartbeat, remedy):
    scene = Scene().run(6)  # one that is heard at the start was there before
    other = Peer(scene.station.link, scene.time, ids)
    for _ in range(8):
        other.send(mav.MAVLink_heartbeat_message(*heartbeat, 0, 0, 4, 3))
        scene.run(1)
    (line,) = [line for line in scene.lines if remedy in line]
    assert str(ids[0]) in line


# Selecting


BOX_OF = (0.4, 0.4, 0.2, 0.2)


@pytest.mark.parametrize(
    ("command", "parameters", "box", "points"),
    [
        *((RECT, (*BOX, camera), BOX_OF, ()) for camera in (0.0, 100.0, NAN)),
        # Corners in any order; over the edge.
        (RECT, (0.6, 0.7, 0.4, 0.3), (0.4, 0.3, 0.2, 0.4), ()),
        (RECT, (0.6, 0.3, 0.4, 0.7), (0.4, 0.3, 0.2, 0.4), ()),
        (RECT, (0.4, 0.7, 0.6, 0.3), (0.4, 0.3, 0.2, 0.4), ()),
        (RECT, (-0.5, 0.2, 0.4, 1.5), (0.0, 0.2, 0.4, 0.8), ()),
        (POINT, (0.25, 0.75, 0.02), None, ((0.25, 0.75),)),
        (STOP, (), None, ()),
    ],
)
@pytest.mark.parametrize("by_whole_numbers", [False, True])
def test_what_is_asked_for_is_requested_and_what_is_decided_is_answered(
    command, parameters, box, points, by_whole_numbers
):
    """By COMMAND_LONG, or by COMMAND_INT, whose whole numbers here are not set."""
    scene = Scene()
    if by_whole_numbers:
        first = [*parameters, *[0.0] * 4][:4]
        unset = 2**31 - 1, 2**31 - 1, NAN
        scene.station.send(mav.MAVLink_command_int_message(1, 100, 0, command, 0, 0, *first, *unset))
        scene.run()
    else:
        scene.ask(command, *parameters)
    (request,) = scene.desk.requests
    assert (request.box and request.box.xywh()) == (box and pytest.approx(box))
    assert (request.points, request.labels) == (points, (1,) * len(points))
    outcome = Outcome.CLEARED if command == STOP else Outcome.ACCEPTED
    scene.bridge.selection_result(ResultReport(request.stamp_ns, outcome))
    assert scene.run().station.acks(command) == [(IN_PROGRESS, 100), (ACCEPTED, 100)]


@pytest.mark.parametrize(
    ("command", "parameters", "word"),
    [
        *((RECT, box, "0 to 1") for box in ((NAN, 0.2, 0.4, 0.4), (0.2, 0.2, math.inf, 0.4))),
        *((RECT, box, "0 to 1") for box in ((1.2, 0.2, 1.4, 0.4), (-0.4, 0.2, -0.1, 0.4), (0.5,) * 4)),
        # Clipped they would be the whole picture, or a part of it.
        *((RECT, (*low, 400.0, 400.0), "400 looks like pixels") for low in ((200.0, 200.0), (0.0, 0.0))),
        (RECT, (-200.0, 0.2, 0.4, 0.4), "-200 looks like pixels"),
        *((POINT, point, "0 to 1") for point in ((NAN, 0.5), (0.5, NAN), (1.5, 0.5), (-0.1, 0.5))),
        (RECT, (*BOX, 101.0), "camera 101, but this is camera 100"),
    ],
)
def test_what_lies_not_in_the_video_or_is_for_another_camera_is_denied_and_the_station_told(
    command, parameters, word
):
    scene = Scene()
    assert scene.ask(command, *parameters) == [DENIED]
    assert any(word in line for line in scene.lines)
    assert any("selection refused" in text.text for text in scene.station.of("STATUSTEXT"))
    assert scene.desk.requests == []


@pytest.mark.parametrize("newest_ns", [None, -2 * EPOCH_NS, 0, 1])
def test_what_the_tracker_refuses_is_denied_with_its_words(newest_ns):
    """``newest_ns``: its newest image, after the one that is meant; None: it has not said which."""
    scene = Scene()
    scene.ask(RECT, *BOX)
    stamp = scene.desk.requests[0].stamp_ns
    if newest_ns is not None:  # its stamp is 0 where it has had no image
        scene.bridge.track(status(TrackState.IDLE, max(stamp + newest_ns, 0)))
    scene.bridge.selection_result(ResultReport(stamp + 1, Outcome.ACCEPTED))
    for _ in range(2):  # the first decision counts
        scene.bridge.selection_result(ResultReport(stamp, Outcome.REFUSED, "the image is 9 s old"))
    scene.run()
    assert scene.station.acks(RECT) == [(IN_PROGRESS, 100), (DENIED, 100)]
    assert any("9 s old" in text.text for text in scene.station.of("STATUSTEXT"))


def test_a_box_on_an_image_that_arrives_late_waits_for_it():
    """Images that reach the tracker 0.3 s after their stamp; the station's picture is 0.2 s old."""
    scene = Scene()
    scene.bridge.track(status(TrackState.IDLE, EPOCH_NS + round((scene.time.t - 0.3) * NS)))
    scene.ask(RECT, *BOX)
    (request,) = scene.desk.requests
    scene.bridge.selection_result(ResultReport(request.stamp_ns, Outcome.REFUSED, "ahead of the images"))
    scene.run()
    assert scene.station.acks(RECT) == [(IN_PROGRESS, 100)]
    scene.bridge.track(status(TrackState.IDLE, request.stamp_ns - 1))
    assert scene.desk.requests == [request]
    for _ in range(2):
        scene.bridge.track(status(TrackState.IDLE, request.stamp_ns))
    assert scene.desk.requests == [request, request]
    scene.desk.accept(scene.bridge)
    scene.run()
    assert scene.station.acks(RECT) == [(IN_PROGRESS, 100), (ACCEPTED, 100)]


def test_a_box_on_an_image_that_never_arrives_is_denied_with_the_whole_reason():
    scene = Scene()
    scene.bridge.track(status(TrackState.IDLE, EPOCH_NS - NS))
    scene.ask(RECT, *BOX)
    why = "the stamp 1700000000.100000000 is 0.900 s ahead of the newest image; compare the clocks of both"
    scene.bridge.selection_result(ResultReport(scene.desk.requests[0].stamp_ns, Outcome.REFUSED, why))
    scene.run(1.6)
    assert scene.station.acks(RECT) == [(IN_PROGRESS, 100), (DENIED, 100)]
    pieces = [m for m in scene.station.of("STATUSTEXT") if m.id]
    assert [piece.chunk_seq for piece in pieces] == [0, 1, 2]
    assert len({piece.id for piece in pieces}) == 1
    assert "".join(piece.text for piece in pieces) == f"selection refused: {why}"


def test_a_tracker_that_cannot_now_or_never_answers_is_a_temporary_refusal():
    """Before the station gives up."""
    scene = Scene()
    scene.ask(RECT, *BOX)
    scene.run(1.6)
    assert scene.station.acks(RECT) == [(IN_PROGRESS, 100), (REJECTED, 100)]
    scene.desk.impossible = "the node is not active"
    assert scene.ask(POINT, 0.5, 0.5) == [REJECTED]
    silent, impossible = scene.lines
    assert "did not answer" in silent
    assert "the node is not active" in impossible


def test_a_repeat_is_answered_and_does_not_select_again():
    scene = Scene()
    scene.ask(RECT, *BOX, NAN)
    assert scene.ask(RECT, *BOX, NAN, confirmation=1) == [IN_PROGRESS]
    scene.desk.accept(scene.bridge)
    scene.run(0.1)
    assert scene.station.acks(RECT) == [(IN_PROGRESS, 100), (IN_PROGRESS, 100), (ACCEPTED, 100)]
    assert scene.ask(RECT, *BOX, NAN) == [ACCEPTED]
    scene.run(2)
    assert scene.ask(RECT, *BOX, NAN, confirmation=2)[-1] == ACCEPTED
    assert len(scene.desk.requests) == 1
    # The same rectangle drawn again, later, is a wish of its own, and another one at once.
    assert scene.ask(RECT, *BOX, NAN) == [IN_PROGRESS]
    assert scene.ask(RECT, *BOX[:3], 0.7, NAN) == [IN_PROGRESS]
    assert len(scene.desk.requests) == 3


def test_a_command_over_two_links_is_one_wish_and_is_answered_on_both():
    scene = Scene(links=2)
    for station in scene.stations:
        station.command(RECT, *BOX)
        scene.run(0.2)
    assert len(scene.desk.requests) == 1
    scene.desk.accept(scene.bridge)
    scene.run()
    answers = [[result for result, _ in station.acks(RECT)] for station in scene.stations]
    assert answers == [[IN_PROGRESS, ACCEPTED]] * 2


def test_stations_at_one_moment_have_a_wish_each_and_get_its_answer():
    scene = Scene()
    for system in (255, 254, 253):
        Peer(scene.station.link, scene.time, (system, 190)).command(RECT, *BOX)
    scene.run()
    first, second, third = (r.stamp_ns for r in scene.desk.requests)
    assert len({first, second, third}) == 3
    scene.bridge.selection_result(ResultReport(first, Outcome.REFUSED, "no"))
    for stamp_ns in (third, second):
        scene.bridge.selection_result(ResultReport(stamp_ns, Outcome.ACCEPTED))
    scene.run()
    answers = [(m.result, m.target_system) for m in scene.station.of("COMMAND_ACK")]
    assert answers[-3:] == [(DENIED, 255), (ACCEPTED, 253), (ACCEPTED, 254)]


# Saying


@pytest.mark.parametrize(
    ("state", "flags", "mode"),
    [
        (TrackState.IDLE, 0, 0),
        (TrackState.ACQUIRING, 1, 2),
        (TrackState.TRACKING, 1, 2),
        (TrackState.COASTING, 9, 2),
        (TrackState.LOST, 2, 0),
    ],
)
def test_states_have_their_flags(state, flags, mode):
    message = Scene().show(state)
    assert (message.tracking_status, message.tracking_mode) == (flags, mode)
    box = (message.rec_top_x, message.rec_top_y, message.rec_bottom_x, message.rec_bottom_y)
    if mode:
        assert box == pytest.approx(BOX)
        assert message.target_data == 4
    else:
        assert all(map(math.isnan, box))
        assert message.target_data == 0
    assert all(map(math.isnan, (message.point_x, message.point_y, message.radius)))


def test_lost_can_be_told_as_idle_and_a_burnt_in_overlay_as_rendered():
    scene = Scene(lost_status="idle", rendered=True)
    assert scene.show(TrackState.LOST).tracking_status == 0
    assert scene.show(TrackState.TRACKING).target_data == 4 | 2


def test_each_change_is_told_at_once_without_any_stream():
    scene = Scene()
    for state in (TrackState.ACQUIRING, TrackState.TRACKING, TrackState.TRACKING, TrackState.COASTING):
        scene.show(state)
    said = [m.tracking_status for m in scene.station.of("CAMERA_TRACKING_IMAGE_STATUS")]
    assert said == [1, 9]
    scene.show(TrackState.TRACKING)
    scene.show(TrackState.TRACKING, selection=2)
    assert len(scene.station.of("CAMERA_TRACKING_IMAGE_STATUS")) == 4


def test_a_box_is_clipped_to_the_picture_and_one_of_no_numbers_not_shown():
    message = Scene().show(TrackState.TRACKING, x=-100.0, width=300.0)
    assert message.rec_top_x == 0.0
    assert message.rec_bottom_x == pytest.approx(200 / 1280)
    message = Scene().show(TrackState.TRACKING, x=NAN, width=math.inf)
    assert (message.tracking_status, message.tracking_mode, message.target_data) == (1, 0, 0)
    assert math.isnan(message.rec_top_x)


def test_a_stream_has_the_rate_asked_also_after_the_bridge_stood_still_and_ends():
    scene = Scene()
    assert scene.ask(INTERVAL, STATUS, 100_000) == [ACCEPTED]
    assert scene.streamed(5) == pytest.approx(50, abs=2)
    scene.time.t += 5.0
    assert scene.streamed(1) == pytest.approx(10, abs=2)
    assert scene.ask(INTERVAL, STATUS, -1) == [ACCEPTED]
    scene.station.command(INTERVAL, STATUS, -1)
    assert scene.streamed(2) == 0
    scene.station.command(REQUEST, STATUS)  # a single one
    assert scene.streamed(1) == 1


@pytest.mark.parametrize(
    ("interval_us", "result", "count"),
    [(20_000, ACCEPTED, 100), (19_999, DENIED, 0), (0, ACCEPTED, 10), (-2, DENIED, 0), (NAN, DENIED, 0)],
)
def test_a_stream_is_fifty_a_second_at_most_and_five_where_the_rate_is_left_to_us(interval_us, result, count):
    scene = Scene()
    assert scene.ask(INTERVAL, STATUS, interval_us) == [result]
    assert scene.streamed(2) == pytest.approx(count, abs=2 * bool(count))


def test_a_line_that_is_repeated_is_told_each_five_seconds_and_each_long_text_has_its_number():
    scene = Scene()
    for _ in range(12):
        scene.ask(RECT, 0.5, 0.5, 0.5, 0.5)
        scene.run(0.5)
    scene.ask(RECT, 0.6, 0.6, 0.6, 0.6)
    assert ["0.5" in line for line in scene.lines] == [True, True, False]
    texts = scene.station.of("STATUSTEXT")
    assert [(text.id, text.chunk_seq) for text in texts] == [
        (n, piece) for n in (1, 2, 3) for piece in (0, 1)
    ]


def test_of_two_streams_on_a_link_the_faster_counts_and_one_that_stops_leaves_the_other():
    scene = Scene()
    other = Peer(scene.station.link, scene.time, (254, 190))
    scene.ask(INTERVAL, STATUS, 500_000)
    for interval_us, per_second in ((100_000, 10), (-1, 2)):
        other.command(INTERVAL, STATUS, interval_us)
        scene.run()
        assert scene.streamed(5) == pytest.approx(5 * per_second, abs=1)


@pytest.mark.parametrize(("state", "flags"), [(TrackState.TRACKING, 2), (TrackState.IDLE, 0)])
def test_a_silent_tracker_is_not_claimed_to_track_and_it_is_said_once_of_one_that_did(state, flags):
    scene = Scene()
    before = scene.show(state)
    scene.run(8)
    assert scene.last_status().tracking_status == flags
    assert sum("no answer of the tracker" in line for line in scene.lines) == bool(flags)
    assert scene.show(TrackState.LOST).tracking_status == 2
    scene.run(8)
    assert sum("no answer of the tracker" in line for line in scene.lines) == bool(flags)
    assert scene.show(state).tracking_status == before.tracking_status


# The picture the operator sees


corners, sides, shares = st.floats(-0.2, 0.5), st.floats(0.1, 1.0), st.floats(0, 1)


@given(st.builds(StreamView, corners, corners, sides, sides, st.integers(0, 3)), shares, shares)
def test_the_map_to_the_video_goes_both_ways(view, u, v):
    assert view.to_video(*view.to_image(u, v)) == pytest.approx((u, v), abs=1e-9)


def test_a_cropped_and_turned_video_is_mapped():
    scene = Scene(view_left=0.5, view_width=0.5, view_quarter_turns=1)
    scene.ask(RECT, 0.0, 0.0, 0.5, 0.5)
    request = scene.desk.requests[0]
    # The upper left quarter of the turned video is the lower left quarter of the image's right half.
    assert request.box.xywh() == pytest.approx((0.5, 0.5, 0.25, 0.5))
    message = scene.show(TrackState.TRACKING, x=640.0, y=360.0, width=320.0, height=360.0)
    box = (message.rec_top_x, message.rec_top_y, message.rec_bottom_x, message.rec_bottom_y)
    assert box == pytest.approx((0.0, 0.0, 0.5, 0.5))


# Landing


def test_a_landing_target_has_the_angles_of_the_image_axes():
    scene = Scene()
    scene.bridge.set_camera(LENS)
    scene.show(TrackState.TRACKING, width=90.0, height=45.0)
    x, y = 0.3, -0.4
    estimate = seen_at(EPOCH_NS, math.atan(x), math.atan(y / math.hypot(1.0, x)))
    scene.bridge.estimate(estimate)
    for silent in (
        replace(estimate, state=TrackState.COASTING),
        replace(estimate, measured=False),
        replace(estimate, valid=False),
        replace(estimate, elevation=math.inf),
        replace(estimate, has_bearing=False),
        replace(estimate, azimuth=NAN),
    ):
        scene.bridge.estimate(silent)
    scene.run()
    (message,) = scene.station.of("LANDING_TARGET")
    assert math.tan(message.angle_x) == pytest.approx(x, rel=1e-5)
    assert math.tan(message.angle_y) == pytest.approx(y, rel=1e-5)
    size = (2 * math.atan(45 / 900), 2 * math.atan(22.5 / 600))
    assert (message.size_x, message.size_y) == pytest.approx(size, rel=1e-5)
    assert (message.distance, message.position_valid) == (0.0, 0)


GOOD = seen_at(EPOCH_NS, 0.0, 0.0)
DOWN, FORWARD = 25, 0


def landing(scene: Scene, stamp_ns: int = EPOCH_NS) -> object:
    scene.bridge.estimate(replace(GOOD, stamp_ns=stamp_ns))
    scene.run()
    return scene.station.of("LANDING_TARGET")[-1]


LENS = CameraModel(Intrinsics(900, 600, 640, 360), 1280, 720)


@pytest.mark.parametrize(
    ("camera", "fields", "mode"),
    [
        *((LENS, {"state": state}, 0) for state in (TrackState.IDLE, TrackState.LOST)),
        *((LENS, {"image_size": size}, 0) for size in ((0, 720), (1280, 0))),
        *((LENS, {"box": None}, 0), (LENS, None, 0), (None, {}, 2), (CameraModel(None, 1280, 720), {}, 2)),
    ],
)
def test_what_has_no_box_in_an_image_or_no_lens_has_no_size(camera, fields, mode):
    """``fields``: in which the tracker's word differs from that of a followed target; None: it says none."""
    scene = Scene()
    if camera is not None:
        scene.bridge.set_camera(camera)
    if fields is not None:
        scene.bridge.track(replace(status(TrackState.TRACKING), **fields))
        scene.run()
        assert scene.last_status().tracking_mode == mode
    message = landing(scene)
    assert (message.size_x, message.size_y) == (0.0, 0.0)


def distance_sensor(cm: int, facing: int = DOWN, quality: int = 0) -> object:
    """One that measures from 0.1 to 50 m."""
    return mav.MAVLink_distance_sensor_message(0, 10, 5000, cm, 0, 0, facing, 0, signal_quality=quality)


@pytest.mark.parametrize(
    ("ids", "message", "distance"),
    [
        ((7, 1), distance_sensor(3100), 5.2),  # another vehicle's
        ((1, 1), distance_sensor(3100, FORWARD), 5.2),
        ((1, 158), distance_sensor(600, quality=100), 6.0),  # a peripheral of ours
        ((1, 1), distance_sensor(5), 0.0),  # below its range: it does not see the ground
        ((1, 1), distance_sensor(5001), 0.0),
        ((1, 1), distance_sensor(600, quality=1), 0.0),  # marked invalid
    ],
)
def test_only_valid_distances_of_this_vehicle_count(ids, message, distance):
    scene = Scene()
    Peer(scene.station.link, scene.time, (1, 1)).send(distance_sensor(520))
    scene.run()
    Peer(scene.station.link, scene.time, ids).send(message)
    scene.run()
    assert landing(scene).distance == pytest.approx(distance)
    scene.run(2)
    assert landing(scene).distance == 0.0  # too old


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(("clock_ns", "name"), [(EPOCH_NS, ""), (EPOCH_NS + 37 * NS, "TAI"), (0, "boot")])
def test_an_image_on_another_clock_has_its_age_all_the_same_and_it_is_told_once(clock_ns, name, is_known):
    scene = Scene()
    scene.run(20)
    if is_known:  # the autopilot was started 100 s before the bridge
        scene.bridge.gimbal.autopilot_clock.to_ours(scene.time.t + 100.0, scene.time.t)
    stamp_ns = clock_ns + round((scene.time.t - 0.15) * NS)
    expected_us = scene.time.t - 0.15 + (100.0 if is_known else EPOCH_NS / NS)
    assert landing(scene, stamp_ns).time_usec == pytest.approx(expected_us * 1e6, abs=2)
    scene.run(1)
    landing(scene, clock_ns + round((scene.time.t - 0.15) * NS))
    told = [line for line in scene.lines if "image stamps" in line]
    assert len(told) == bool(name)
    assert all(name in line and "converted for LANDING_TARGET" in line for line in told)


def test_an_image_on_an_unknown_clock_has_no_landing_target_and_it_is_told_once():
    scene = Scene()
    for _ in range(3):
        scene.bridge.estimate(replace(GOOD, stamp_ns=EPOCH_NS + 500 * NS + round(scene.time.t * NS)))
        scene.run(6)
    assert scene.station.of("LANDING_TARGET") == []
    (line,) = [line for line in scene.lines if "no LANDING_TARGET" in line]
    assert "+500" in line
    assert "camera's stamps" in line


@pytest.mark.parametrize("offset_ns", [0, 37 * NS])
def test_a_selection_names_an_image_by_the_images_clock(offset_ns):
    scene = Scene(video_latency=0.2)
    scene.bridge.track(status(TrackState.IDLE, EPOCH_NS + offset_ns + round(scene.time.t * NS)))
    scene.run()
    asked_ns = EPOCH_NS + offset_ns + round(scene.time.t * NS)
    scene.ask(RECT, *BOX)
    assert scene.desk.requests[0].stamp_ns == pytest.approx(asked_ns - 0.2 * NS, abs=0.05 * NS)


# Settings


@pytest.mark.parametrize(
    "bad",
    [
        *({"system_id": 0}, {"component_id": 256}, {"model": ""}, {"vendor": "x" * 33}),
        *({"rc_channels": words} for words in ("0", "19", "6,7", "x")),
    ],
)
def test_settings_that_cannot_be_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        BridgeConfig(**bad)


def test_a_selection_in_the_first_moments_of_simulated_time_is_decided():
    """The picture that the operator saw is older than the clock."""
    scene = Scene()
    scene.time.jump_s = -EPOCH_NS / NS
    assert scene.ask(RECT, *BOX) == [IN_PROGRESS]
    stamp = scene.desk.requests[0].stamp_ns
    assert stamp == 0
    scene.bridge.selection_result(ResultReport(stamp, Outcome.ACCEPTED))
    assert scene.run().station.acks(RECT)[-1][0] == ACCEPTED
