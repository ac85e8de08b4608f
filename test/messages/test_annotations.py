"""A track as foxglove_msgs/ImageAnnotations, in messages made from the package's definitions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("rosbags.typesys", reason="needs rosbags: pip install 'efftam_ros[tools]'")

from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from support.message_packages import ANNOTATIONS

from efftam_ros.core.geometry import Box
from efftam_ros.core.palette import STATE_STYLES
from efftam_ros.core.types import Track, TrackState
from efftam_ros.messages.annotations import annotations_message

BOX = Box(100.0, 60.0, 40.0, 20.0)
LOOP, PIECES = 2, 4


@pytest.fixture(scope="module")
def store():
    store = get_typestore(Stores.ROS2_JAZZY)
    for name, text in ANNOTATIONS.items():
        store.register(get_types_from_msg(text, f"foxglove_msgs/msg/{name}"))
    return store


@pytest.fixture
def foxglove(store):
    """The classes as the package has them: empty messages can be made, and all is given by name."""
    classes = {name: store.types[f"foxglove_msgs/msg/{name}"] for name in ANNOTATIONS}
    empty = classes["ImageAnnotations"]
    return SimpleNamespace(**classes | {"ImageAnnotations": lambda: empty(circles=[], points=[], texts=[])})


@pytest.fixture
def header(store):
    time = store.types["builtin_interfaces/msg/Time"](sec=12, nanosec=345)
    return SimpleNamespace(stamp=time, frame_id="camera")


def track(state: TrackState, box: Box | None = BOX, **fields) -> Track:
    return Track(12_000_000_345, state, box=box, image_size=(640, 480), **fields)


def sent(store, message):
    """The message after its way over the wire."""
    kind = "foxglove_msgs/msg/ImageAnnotations"
    return store.deserialize_cdr(store.serialize_cdr(message, kind), kind)


@pytest.mark.parametrize("state", [s for s in TrackState if s is not TrackState.IDLE], ids=lambda s: s.name)
def test_each_state_has_its_word_its_colour_and_the_images_stamp(store, foxglove, header, state):
    box = None if state is TrackState.LOST else BOX
    message = sent(store, annotations_message(foxglove, {0: track(state, box, measured=True)}, header))
    rgb = STATE_STYLES[state].rgb
    (text,) = message.texts
    assert text.text == state.name
    assert 0 <= text.position.x < 640
    assert 0 < text.position.y < 480
    for shape in message.points:
        colour = shape.outline_color
        assert [255 * colour.r, 255 * colour.g, 255 * colour.b, colour.a] == pytest.approx([*rgb, 1])
    for shape in [*message.points, text]:
        assert (shape.timestamp.sec, shape.timestamp.nanosec) == (12, 345)


def test_a_measured_box_is_one_closed_line_on_its_edges(store, foxglove, header):
    tracks = {0: track(TrackState.TRACKING, measured=True)}
    message = sent(store, annotations_message(foxglove, tracks, header))
    (shape,) = message.points
    assert shape.type == LOOP
    assert [(p.x, p.y) for p in shape.points] == [(100, 60), (140, 60), (140, 80), (100, 80)]
    assert shape.fill_color.a == 0


@pytest.mark.parametrize(("state", "share"), [(TrackState.COASTING, 0.6), (TrackState.ACQUIRING, 0.6)])
def test_other_lines_are_pieces_of_the_edges(store, foxglove, header, state, share):
    message = sent(store, annotations_message(foxglove, {0: track(state, age_s=0.8)}, header))
    (shape,) = message.points
    assert shape.type == PIECES
    ends = [(p.x, p.y) for p in shape.points]
    segments = zip(ends[::2], ends[1::2], strict=True)
    drawn = sum(abs(bx - ax) + abs(by - ay) for (ax, ay), (bx, by) in segments)
    assert drawn == pytest.approx(share * 2 * (40 + 20))
    for x, y in ends:
        assert x in (100, 140) or y in (60, 80)
        assert 100 <= x <= 140
        assert 60 <= y <= 80
    assert message.texts[0].text.endswith("unseen 0.8 s")


def test_a_lost_target_frames_the_image(store, foxglove, header):
    message = sent(store, annotations_message(foxglove, {0: track(TrackState.LOST, None, age_s=3.0)}, header))
    (frame,) = message.points
    assert frame.type == LOOP
    assert [(p.x, p.y) for p in frame.points] == [(0, 0), (640, 0), (640, 480), (0, 480)]


def test_without_a_target_nothing_is_drawn(store, foxglove, header):
    message = sent(store, annotations_message(foxglove, {0: track(TrackState.IDLE, None)}, header))
    assert [*message.points, *message.texts, *message.circles] == []
