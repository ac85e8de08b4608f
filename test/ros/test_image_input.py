"""The subscription to images follows the camera."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rclpy.qos import ReliabilityPolicy

from efftam_ros.core.errors import InputError
from efftam_ros.ros.common import image_input
from efftam_ros.ros.common.image_input import (
    DEAF_S,
    RENEWAL_S,
    TRANSPORTS,
    ImageInput,
    message_class,
)
from efftam_ros.ros.common.publishing_nodes import LEASE_S

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
IMAGE = "sensor_msgs/msg/Image"


def image_of(number: int) -> SimpleNamespace:
    return SimpleNamespace(header=SimpleNamespace(stamp=number))


class Node:
    """Of a graph with one camera, which offers ``reliability`` on ``topic``, or with these ``publishers``:
    (topic, type, reliability, node)."""

    publishers: list[tuple[str, str, ReliabilityPolicy, str]] | None = None
    remapped: Mapping[str, str] = MappingProxyType({})

    def __init__(self, patch: pytest.MonkeyPatch, wanted: str = "auto", transport: str = "raw") -> None:
        self.topic, self.reliability, self.now_s = "/image", RELIABLE, 0.0
        self.subscriptions: list[SimpleNamespace] = []
        self.received: list[int] = []
        patch.setattr(image_input, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.input = ImageInput(self, transport, wanted, self._receive, lambda topic: None)

    def _receive(self, message) -> None:
        self.received.append(message.header.stamp)

    def image(self, number: int) -> None:
        """The image reaches each subscription that has been matched with the camera."""
        for one in self.subscriptions:
            if one.is_matched:
                one.callback(image_of(number))

    # As rclpy's.

    def resolve_topic_name(self, name: str, only_expand: bool = False) -> str:
        return f"/{name}" if only_expand else self.remapped.get(name, f"/{name}")

    def get_publishers_info_by_topic(self, topic: str) -> list[SimpleNamespace]:
        found = self.publishers
        if found is None:
            found = [(self.topic, IMAGE, self.reliability, "camera")]
        return [
            SimpleNamespace(
                topic_type=kind,
                node_name=name.partition(" again")[0],
                node_namespace="/",
                endpoint_gid=list(name.encode()),
                qos_profile=SimpleNamespace(reliability=offered),
            )
            for where, kind, offered, name in found
            if where == topic
        ]

    def count_publishers(self, topic: str) -> int:
        return len(self.get_publishers_info_by_topic(topic))

    def get_topic_names_and_types(self) -> list[tuple[str, list[str]]]:
        return [(topic, [kind]) for topic, kind, *_ in self.publishers or ()]

    def get_name(self) -> str:
        return "efftam_tracker"

    def has_parameter(self, name: str) -> bool:
        return True

    def get_parameter(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(value="")

    def create_subscription(self, kind, topic, callback, qos, **options) -> SimpleNamespace:
        made = SimpleNamespace(callback=callback, reliability=qos.reliability, is_matched=False)
        self.subscriptions.append(made)
        return made

    def destroy_subscription(self, subscription) -> None:
        self.subscriptions.remove(subscription)


STEPS = st.lists(st.sampled_from(["image", "switch", "match", "look"]), max_size=20)


@given(STEPS)
@example(["image", "switch", "image", "match", "image", "image", "look", "image"])
def test_while_the_camera_restarts_there_is_one_subscription_and_it_is_the_one_that_fits(steps):
    with pytest.MonkeyPatch.context() as patch:
        node, sent = Node(patch), []
        node.subscriptions[0].is_matched = True
        for number, step in enumerate(steps):
            if step == "image":
                sent += [number] * node.subscriptions[0].is_matched
                node.image(number)
            elif step == "switch":
                node.reliability = BEST_EFFORT if node.reliability is RELIABLE else RELIABLE
                node.input.look()
            elif step == "match":
                node.subscriptions[0].is_matched = True
            else:
                node.input.look()
            (one,) = node.subscriptions
            assert one.reliability is node.reliability
        assert node.received == sent
        node.input.close()
        assert node.subscriptions == []


def test_whatever_the_stamps_are_each_image_counts(monkeypatch):
    """Equal ones and ones that go back, also while the camera restarts."""
    node = Node(monkeypatch)
    for numbers in ((7, 7, 5), (4, 4, 3)):
        node.subscriptions[0].is_matched = True
        for number in numbers:
            node.image(number)
        node.reliability = BEST_EFFORT
        node.input.look()
    assert node.received == [7, 7, 5, 4, 4, 3]


COMPRESSED = "sensor_msgs/msg/CompressedImage"


@pytest.mark.parametrize(
    ("publishers", "wanted", "words"),
    [
        ([], "auto", ("nothing publishes /image;", "start the camera driver")),
        ([("/mask", IMAGE, RELIABLE, "efftam_tracker")], "auto", ("start the camera driver",)),  # our own
        ([("/front", IMAGE, RELIABLE, "camera")], "auto", (f"on /front ({IMAGE})", "remap image to one")),
        ([("/image/compressed", COMPRESSED, RELIABLE, "camera")], "auto", ("image_transport to compressed",)),
        ([("/image", COMPRESSED, RELIABLE, "camera")], "auto", (COMPRESSED, "image_transport to compressed")),
        ([("/image", "std_msgs/msg/String", RELIABLE, "x")], "auto", ("remap image to another topic",)),
        ([("/image", IMAGE, BEST_EFFORT, "camera")], "reliable", ("set image_reliability to auto",)),
        ([("/image", IMAGE, RELIABLE, "camera")], "auto", ("(camera: reliable) and no image arrives",)),
        ([("/image", IMAGE, RELIABLE, "efftam_camera")], "auto", ("its log shows whether it waits",)),
    ],
)
def test_why_no_image_comes_is_told_by_what_is_published(monkeypatch, publishers, wanted, words):
    monkeypatch.delenv("RMW_IMPLEMENTATION", raising=False)
    monkeypatch.setattr(Node, "publishers", publishers)
    node = Node(monkeypatch, wanted)
    assert all(word in node.input.explain() for word in words), node.input.explain()
    assert ("any more" in node.input.explain(have_come=True)) == (not node.input.facts["image publishers"])


@pytest.mark.parametrize(
    ("transport", "image", "published", "topic", "calibration"),
    [
        ("raw", "/nose/image", {}, "/nose/image", "/nose/camera_info"),
        ("compressed", "/nose/image", {}, "/nose/image/compressed", "/nose/camera_info"),
        ("compressed", "/nose/image", {"/nose/image": IMAGE}, "/nose/image/compressed", "/nose/camera_info"),
        ("compressed", "/nose/image", {"/nose/image": COMPRESSED}, "/nose/image", "/nose/camera_info"),
        (
            *("compressed", "/nose/image/compressed", {"/nose/image": COMPRESSED}),
            *("/nose/image/compressed", "/nose/camera_info"),
        ),
        ("raw", "/nose/image", {"/camera_info": ""}, "/nose/image", "/camera_info"),
        (
            *("raw", "/nose/image", {"/camera_info": "", "/nose/camera_info": ""}),
            *("/nose/image", "/nose/camera_info"),
        ),
    ],
)
def test_which_topics_are_read_by_the_name_given_and_what_is_published(
    monkeypatch, transport, image, published, topic, calibration
):
    monkeypatch.setattr(Node, "remapped", {"image": image})
    monkeypatch.setattr(Node, "publishers", [(name, kind, RELIABLE, "x") for name, kind in published.items()])
    node = Node(monkeypatch, transport=transport)
    assert (node.input.topic, node.input.camera_info_topic) == (topic, calibration)
    node.remapped = {"image": image, "camera_info": "/own"}
    assert node.input.camera_info_topic == "/own"


@pytest.mark.parametrize("offered", [RELIABLE, BEST_EFFORT])
def test_while_the_camera_is_away_the_subscription_stays_as_it_was(monkeypatch, offered):
    node = Node(monkeypatch)
    node.reliability = offered
    node.input.look()
    before, node.publishers = list(node.subscriptions), []
    node.input.look()
    assert node.subscriptions == before
    assert node.subscriptions[-1].reliability is offered


@pytest.mark.parametrize(
    ("override", "wanted", "asked"),
    [
        ("", "best_effort", BEST_EFFORT),
        ("best_effort", "reliable", BEST_EFFORT),
        ("reliable", "best_effort", RELIABLE),
        ("reliable", "auto", RELIABLE),
    ],
)
def test_an_override_of_the_topic_comes_before_the_parameter(monkeypatch, override, wanted, asked):
    monkeypatch.setattr(Node, "get_parameter", lambda self, name: SimpleNamespace(value=override))
    node = Node(monkeypatch, wanted)
    assert node.subscriptions[0].reliability is asked


@pytest.mark.parametrize(
    ("offers", "asked"),
    [([RELIABLE], RELIABLE), ([RELIABLE, BEST_EFFORT], BEST_EFFORT), ([RELIABLE, RELIABLE], RELIABLE)],
)
def test_images_are_asked_for_reliably_only_where_every_publisher_offers_it(monkeypatch, offers, asked):
    publishers = [("/image", IMAGE, offered, f"camera {number}") for number, offered in enumerate(offers)]
    monkeypatch.setattr(Node, "publishers", publishers)
    assert Node(monkeypatch).subscriptions[0].reliability is asked


def test_two_cameras_on_one_topic_are_told_until_one_is_left(monkeypatch):
    node = Node(monkeypatch)
    cameras = [("/image", IMAGE, RELIABLE, name) for name in ("nose", "tail")]
    for publishers in (cameras[:1], [*cameras[:1], ("/image", COMPRESSED, RELIABLE, "tail")]):
        node.publishers = publishers
        assert node.input.mixed == ""
    node.publishers = cameras
    assert "2 publishers on /image (nose: reliable, tail: reliable)" in node.input.mixed
    node.publishers = [cameras[0], ("/image", IMAGE, RELIABLE, image_input.UNKNOWN_NODE)]
    assert node.input.mixed == ""  # a later look knows its name
    # One that was killed and started again, until it has stayed for too long beside the other.
    node.publishers = [cameras[0], ("/image", IMAGE, RELIABLE, "nose again")]
    assert node.input.mixed == ""
    node.now_s = LEASE_S + 1.0
    assert "2 publishers on /image (nose: reliable, nose: reliable)" in node.input.mixed


def test_where_a_publisher_is_there_and_nothing_arrives_the_subscription_is_made_anew_ever_more_rarely(
    monkeypatch,
):
    node = Node(monkeypatch)
    made_s = []
    for tenth in range(1, 2000):
        node.now_s = tenth / 10
        before = node.subscriptions[-1]
        node.input.look()
        if node.subscriptions[-1] is not before:
            made_s.append(node.now_s)
    assert made_s == pytest.approx([2.1, 6.1, 14.1, 30.1, 62.1, 122.1, 182.1], abs=1.0)
    assert len(node.subscriptions) == 1
    assert "renewed 7 times" in node.input.explain(have_come=True)
    node.subscriptions[-1].is_matched = True
    node.image(1)
    node.now_s += DEAF_S - 0.1
    node.input.look()
    assert node.received == [1]
    (before,) = node.subscriptions
    node.now_s += 0.2  # the silence begins again
    node.input.look()
    assert len(node.subscriptions) == 1
    assert node.subscriptions != [before]


def test_nothing_is_made_anew_while_no_publisher_is_there_or_images_come(monkeypatch):
    node = Node(monkeypatch)
    (first,) = node.subscriptions
    first.is_matched = True
    node.publishers = []
    for second in range(60):
        node.now_s = float(second)
        node.input.look()
    node.publishers = None
    for second in range(60, 120):
        node.now_s = float(second)
        node.image(second)
        node.input.look()
    assert node.subscriptions == [first]
    assert node.input.renewal == ""


def test_another_participant_is_asked_for_only_where_no_image_has_ever_come(monkeypatch):
    deaf, hearing = Node(monkeypatch), None
    for node in (deaf, hearing := Node(monkeypatch)):
        asked_s = None
        node.now_s = 0.0
        monkeypatch.setattr(image_input, "time", SimpleNamespace(monotonic=lambda node=node: node.now_s))
        for tenth in range(1, 400):
            node.now_s = tenth / 10
            if node is hearing and tenth == 30:
                node.subscriptions[-1].callback(image_of(1))
            node.input.look()
            if node.input.renewal and asked_s is None:
                asked_s = node.now_s
        assert asked_s == (None if node is hearing else pytest.approx(2.0 + RENEWAL_S, abs=0.3))
    assert "/image" in deaf.input.renewal


@pytest.mark.parametrize("transport", ["ffmpeg", "foxglove"])
def test_what_decodes_a_video_topic_is_missed_before_its_first_packet(monkeypatch, transport):
    package, _, name = TRANSPORTS[transport].message_type.split("/")
    messages = SimpleNamespace(**{name: object})
    monkeypatch.setitem(sys.modules, package, SimpleNamespace(msg=messages))
    monkeypatch.setitem(sys.modules, f"{package}.msg", messages)
    assert message_class(transport) is object
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InputError) as error:
        message_class(transport)
    assert f"{sys.executable} -m pip install av" in str(error.value)
    assert message_class("compressed") is not None
