"""What the page is told of the messages that its node hears, and of a gimbal's controller that is silent."""

from __future__ import annotations

import math
from types import SimpleNamespace
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
from builtin_interfaces.msg import Time
from efftam_ros.msg import BoundingBox, GimbalStatus
from lifecycle_msgs.msg import State
from rcl_interfaces.msg import ParameterType, ParameterValue
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from efftam_operator.feed import Controller, Lifecycle, Limits, Proposal, Trackers
from efftam_operator.ros import feed, steering
from efftam_operator.ros.feed import picture_of
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Track, TrackState
from efftam_ros.images.levels import Levels
from efftam_ros.images.message import ImageReader, fill_image
from efftam_ros.images.pixels import to_bgr
from efftam_ros.messages.fields import About, bbox_fields
from efftam_ros.messages.reports import Selection, box_report
from efftam_ros.ros.common.conversions import MAX_STAMP_NS

PIXELS = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)


def compressed(suffix: str) -> CompressedImage:
    message = CompressedImage(format=suffix.lstrip("."), data=cv2.imencode(suffix, PIXELS)[1].tobytes())
    message.header.stamp.sec = 7
    return message


def compressed_picture(message: CompressedImage):
    return picture_of(message, ImageReader("compressed", Header).read(message, 0))


def test_a_jpeg_goes_to_the_pages_as_it_came():
    message = compressed(".jpg")
    picture = compressed_picture(message)
    assert (picture.stamp_ns, picture.nbytes) == (7_000_000_000, len(message.data))
    assert picture.jpeg == bytes(message.data)
    assert picture.bgr is None


def test_another_format_is_decoded_for_the_pages_which_show_jpeg():
    picture = compressed_picture(compressed(".png"))
    assert picture.jpeg is None
    assert np.array_equal(picture.bgr(), PIXELS)


def test_a_negative_stamp_is_refused_with_its_value():
    message = compressed(".jpg")
    message.header.stamp.sec, message.header.stamp.nanosec = -1, 10**9 - 1
    with pytest.raises(ValueError, match="the stamp is -1 ns"):
        compressed_picture(message)


@pytest.mark.parametrize(("x", "reason"), [(3.0, ""), (math.nan, "it is another target's")])
def test_a_proposal_has_its_box_or_a_reason(x, reason):
    message = BoundingBox(x=x, y=4.0, width=5.0, height=6.0, reason=reason)
    message.header.stamp.sec = 7
    assert feed.proposal_of(message) == Proposal(7 * 10**9, None if reason else Box(3, 4, 5, 6), reason)


def test_a_place_where_a_lost_target_may_be_names_the_target():
    message = BoundingBox(x=3.0, y=4.0, width=5.0, height=6.0, target_id=2, state=BoundingBox.LOST)
    assert feed.proposal_of(message) == Proposal(0, Box(3, 4, 5, 6), "", target_id=2, is_lost=True)


@pytest.mark.parametrize("unknown", [(), ("y",), ("x", "y", "width", "height")])
def test_a_box_of_a_message_is_known_as_a_whole_or_not_at_all(unknown):
    header = SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=0))
    track = Track(10**9, TrackState.TRACKING, Box(1, 2, 30, 40), True, 0.9, 0.8, image_size=(640, 360))
    fields = bbox_fields(track, About(header)) | dict.fromkeys(unknown, math.nan)
    assert box_report(SimpleNamespace(**fields)).box == (None if unknown else Box(1, 2, 30, 40))


@pytest.mark.parametrize("likeness", [0.71, math.nan])
def test_the_scores_of_a_box_message_reach_the_page(likeness):
    header = SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=0))
    track = Track(10**9, TrackState.TRACKING, Box(1, 2, 30, 40), True, 0.9, 0.8, likeness=likeness)
    report = box_report(SimpleNamespace(**bbox_fields(track, About(header))))
    assert (report.presence, report.quality) == (0.9, 0.8)
    assert report.likeness == pytest.approx(likeness, nan_ok=True)


GONE, SILENT, INACTIVE, RUNNING = (getattr(Controller, n) for n in ("GONE", "SILENT", "INACTIVE", "RUNNING"))


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (["look"], []),  # there was no sign of one
        (["offered", "look", 1.1, "look"], [SILENT]),
        (["offered", "look", 0.9, "look"], []),
        (["status", 0.9, "look"], [RUNNING]),
        (["status", 1.1, "look"], [RUNNING, GONE]),
        (["offered", "status", 1.1, "look", "status", 0.9, "look"], [RUNNING, SILENT, RUNNING]),
        (["offered", "status", 1.1, "inactive", "look"], [RUNNING, INACTIVE]),
        (["offered", "status", 1.1, "inactive", 1.1, "look"], [RUNNING, SILENT]),
        (["offered", "status", 1.1, "active", "look"], [RUNNING, SILENT]),
        (["offered", "inactive", "status", "look"], [RUNNING]),  # it was activated
    ],
)
def test_a_controller_without_a_word_is_inactive_silent_or_gone_by_what_its_service_says(
    monkeypatch, events, told
):
    now_s, heard = 100.0, []
    monkeypatch.setattr(steering, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(steering, "steady_timer", lambda *_: None)
    monkeypatch.setattr(steering, "Polled", lambda *_: None)
    is_offered, uses = False, []
    client = SimpleNamespace(service_is_ready=lambda: is_offered)
    node = SimpleNamespace(create_client=lambda *_: client, create_subscription=lambda *_: None)
    calls = SimpleNamespace(waits_for=lambda client: False, ask=lambda client, request, use: uses.append(use))
    made = steering.RosSteering(node, "efftam_gimbal", 1.0, calls)
    made.start(heard.append)
    for event in events:
        if isinstance(event, float):
            now_s += event
        elif event == "offered":
            is_offered = True
        elif event == "look":
            made._look()
        elif event == "status":
            made._on_status(GimbalStatus(enabled=True, phase=GimbalStatus.FOLLOWING))
        else:
            state = State.PRIMARY_STATE_INACTIVE if event == "inactive" else State.PRIMARY_STATE_ACTIVE
            made._on_state(SimpleNamespace(current_state=SimpleNamespace(id=state)))
    assert [state.controller for state in heard] == told
    # What it said last may go on without it; one that is inactive steers nothing.
    assert [state.enabled for state in heard] == [RUNNING in told and what is not INACTIVE for what in told]
    assert bool(uses) == (is_offered and "look" in events)


class Graph:
    """A node that notes which topics it is subscribed to, and its clock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s, self.topics, self.sent = 100.0, [], []
        patch.setattr(feed, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        patch.setattr(feed, "steady_timer", lambda *_: None)
        patch.setattr(feed, "ImageInput", lambda *_: self.subscribed("image"))
        self.clients: dict[str, SimpleNamespace] = {}
        self.is_ready, self.asked, self.late = False, {}, []
        self.trackers: tuple[str, ...] = ()
        self.has_images = False
        ask = lambda client, request, use: self.asked.update({client.srv_name: use})  # noqa: E731
        calls = Mock(give_up=lambda: self.late, waits_for=lambda client: False, ask=ask)
        self.feed = feed.RosFeed(self, feed.OperatorConfig(), calls)
        self.told: list = []
        self.feed.start(self.told.append)

    def subscribed(self, topic: str) -> SimpleNamespace:
        self.topics.append(topic)
        return SimpleNamespace(
            topic_name=topic,
            close=lambda: self.topics.remove(topic),
            look=lambda: None,
            is_receiving=self.has_images,
            explain=lambda have_come=False: "why",
        )

    # As rclpy's.

    def create_subscription(self, kind, topic, use, qos, **options) -> SimpleNamespace:
        return self.subscribed(topic)

    def destroy_subscription(self, subscription) -> None:
        subscription.close()

    def create_publisher(self, kind, topic, depth) -> SimpleNamespace:
        return SimpleNamespace(publish=self.sent.append)

    def create_client(self, kind, name) -> SimpleNamespace:
        made = SimpleNamespace(srv_name=name, service_is_ready=lambda: self.is_ready)
        self.clients[name] = made
        return made

    def get_publishers_info_by_topic(self, topic) -> list:
        return [
            SimpleNamespace(node_namespace=f"/{one[0]}/", node_name="t", endpoint_gid=list(one.encode()))
            for one in self.trackers
        ]


REPORTS = {"bbox", "proposal", "velocity"}


def test_reports_are_heard_while_somebody_watches_and_half_a_minute_longer_and_images_only_then(monkeypatch):
    graph = Graph(monkeypatch)
    for watched, passed_s, more in (
        (None, 60.0, set()),
        (True, 0.0, {"image", *REPORTS}),
        (True, 60.0, {"image", *REPORTS}),  # a second page
        (False, 0.0, REPORTS),
        (None, 29.0, REPORTS),
        (True, 0.0, {"image", *REPORTS}),
        (False, 29.0, REPORTS),
        (False, 0.9, REPORTS),  # nothing is watched twice
        (None, 0.2, set()),
        (None, 60.0, set()),
        (True, 0.0, {"image", *REPORTS}),
    ):
        if watched is not None:
            graph.feed.watch(watched)
        graph.now_s += passed_s
        graph.feed._look()
        assert sorted(graph.topics) == sorted({"selection_result"} | more)
        assert graph.feed.explain() == ("why" if "image" in more else "")


def test_who_answers_is_told_at_every_change_and_nobody_once_the_answers_are_not_heard(monkeypatch):
    graph, told = Graph(monkeypatch), []
    for watched, trackers, passed_s, names in (
        (False, ("a", "b"), 0.0, None),
        (True, ("b", "a"), 0.0, ("/a/t", "/b/t")),
        (True, ("a", "b"), 0.0, None),
        (True, ("a",), 0.0, ("/a/t",)),
        (False, ("a", "b"), 1.0, ("/a/t", "/b/t")),
        (False, ("a", "b"), 60.0, ()),  # one may end without being noticed
        (True, ("a", "b"), 0.0, ("/a/t", "/b/t")),
        (
            True,
            ("a", "b", "b2"),
            0.0,
            ("/a/t", "/b/t", "again"),
        ),  # the old one is still there
        (True, ("a", "b2"), 5.0, None),
        (True, ("a2",), 0.0, ("/a/t", "again")),
    ):
        graph.trackers = trackers
        graph.feed.watch(watched)
        graph.now_s += passed_s
        graph.feed._look()
        if names is not None:
            told.append(Trackers(tuple(n for n in names if n != "again"), has_restarted="again" in names))
        assert [one for one in graph.told if isinstance(one, Trackers)] == told


def test_a_stamp_that_no_message_can_hold_is_not_sent(monkeypatch):
    graph = Graph(monkeypatch)
    for stamp_ns, count in ((MAX_STAMP_NS, 1), (MAX_STAMP_NS + 1, 1)):
        graph.feed.hold(stamp_ns)
        assert len(graph.sent) == count
    replies = []
    graph.feed.propose(Selection(MAX_STAMP_NS + 1))
    graph.feed.select(Selection(MAX_STAMP_NS + 1), replies.append)
    assert (graph.told[0].stamp_ns, graph.told[0].box) == (MAX_STAMP_NS + 1, None)
    assert "the largest stamp" in graph.told[0].reason
    assert (replies[0].ok, "the largest stamp" in replies[0].message) == (False, True)


def test_the_trackers_state_is_asked_for_always_and_its_limits_while_unknown_or_watched(monkeypatch):
    graph, tracker = Graph(monkeypatch), feed.OperatorConfig().tracker
    state, limits = f"{tracker}/get_state", f"{tracker}/get_parameters"

    def asked() -> set[str]:
        graph.asked.clear()
        graph.feed._look()
        return set(graph.asked)

    assert (asked(), graph.told.pop()) == (set(), Lifecycle.UNKNOWN)  # there is none
    graph.is_ready = True
    for _ in range(2):
        assert asked() == {state, limits}
    unknown = ParameterValue(type=ParameterType.PARAMETER_NOT_SET)
    buffer = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=7.5)
    most = ParameterValue(type=ParameterType.PARAMETER_INTEGER, integer_value=3)
    # A node of another kind may have this name: rclpy answers then with none at all.
    for values in ([], [unknown], [unknown] * 3, [buffer, most]):
        graph.asked[limits](SimpleNamespace(values=values))
        assert (asked(), graph.told) == ({state, limits}, [])
    auto = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value="auto")
    graph.asked[limits](SimpleNamespace(values=[buffer, most, auto]))
    assert graph.told == [Limits(7.5, 3)]
    assert asked() == {state}
    graph.feed.watch(True)
    assert asked() == {state, limits}  # perhaps another tracker runs by now
    for number, said in (
        (State.PRIMARY_STATE_UNCONFIGURED, Lifecycle.INACTIVE),
        (State.PRIMARY_STATE_INACTIVE, Lifecycle.INACTIVE),
        (State.PRIMARY_STATE_ACTIVE, Lifecycle.ACTIVE),
        (State.PRIMARY_STATE_FINALIZED, Lifecycle.UNKNOWN),
    ):
        graph.asked[state](SimpleNamespace(current_state=SimpleNamespace(id=number)))
        assert graph.told[-1] is said
    graph.asked[state](SimpleNamespace(current_state=SimpleNamespace(id=State.PRIMARY_STATE_ACTIVE)))
    graph.late = [graph.clients[state]]
    asked()
    assert graph.told[-1] is Lifecycle.UNKNOWN


def test_the_page_maps_16_bits_as_the_tracker_does_and_does_not_flicker(monkeypatch):
    """One range for all images, smoothed over time as the tracker's, or the one that is set there."""
    graph, tracker = Graph(monkeypatch), feed.OperatorConfig().tracker
    graph.is_ready = True
    graph.feed.watch(True)
    pixels = np.full((48, 64), 8000, np.uint16)
    pixels[:, 32:] = 8400
    hot = pixels.copy()
    hot[:8, :8] = 20_000  # comes into view

    def shown(reader, number: int, image) -> np.ndarray:
        message = fill_image(Image(), image.view(np.uint8).reshape(48, 128), "mono8")
        message.encoding, message.width = "mono16", 64
        message.header.stamp = Time(sec=10, nanosec=number * 100_000_000)
        return to_bgr(reader.read(message, 0).image())

    for text in ("auto", "7000,9000"):
        answer = [ParameterValue(type=ParameterType.PARAMETER_NOT_SET)] * 2
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=text)
        graph.feed._look()
        graph.asked[f"{tracker}/get_parameters"](SimpleNamespace(values=[*answer, value]))
        trackers = ImageReader("raw", Header, Levels(text))
        for number, image in enumerate((pixels, hot, hot)):
            ours = shown(graph.feed._reader, number, image)
            assert (ours == shown(trackers, number, image)).all()
            of_this_alone = shown(ImageReader("raw", Header), number, image)
            assert (ours == of_this_alone).all() == (text == "auto" and number == 0)


def test_boxes_are_subscribed_to_anew_where_images_come_and_a_tracker_is_there_that_is_not_heard(monkeypatch):
    for has_images, trackers, heard, count in (
        (True, ("a",), False, 2),  # at 2 and 6 s
        (True, ("a",), True, 0),
        (True, (), False, 0),
        (False, ("a",), False, 0),
    ):
        graph = Graph(monkeypatch)
        graph.has_images, graph.trackers, made = has_images, trackers, []
        make = graph.create_subscription

        def noted(kind, topic, *given, make=make, made=made, **named):
            made.append(topic)
            return make(kind, topic, *given, **named)

        graph.create_subscription = noted
        graph.feed.watch(True)
        for _ in range(20):
            graph.now_s += 0.5
            if heard:
                message = BoundingBox()
                message.header.stamp.sec = 1
                graph.feed._on_box(message)
            graph.feed._look()
        assert made.count("bbox") == 1 + count
        assert sorted(graph.topics) == sorted({"selection_result", "image", *REPORTS})
