"""Message fields and the tracker's types, with rosbags' message classes: no ROS is needed."""

from __future__ import annotations

import math
import sys
from array import array
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from support.reasons import because

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.types import CameraMotion, Motion, Track, TrackState
from efftam_ros.images.levels import Levels
from efftam_ros.images.message import (
    MAX_FRAME_ID,
    ImageReader,
    check_header,
    fill_image,
    image_fields,
    image_from_compressed,
    image_from_message,
    stamp_like,
    stamp_ns,
)
from efftam_ros.images.pixels import ENCODINGS, NARROWED, to_bgr
from efftam_ros.messages.bearing import Bearing, camera_model
from efftam_ros.messages.fields import About, Outcome, bbox_fields, selection_prompt, velocity_fields
from efftam_ros.messages.reports import BoxReport, MotionReport, box_report, motion_report

MESSAGES = Path(__file__).parents[2] / "msg"


@pytest.fixture(scope="module")
def types():
    store = get_typestore(Stores.ROS2_JAZZY)
    for file in MESSAGES.glob("*.msg"):
        store.register(get_types_from_msg(file.read_text(), f"efftam_ros/msg/{file.stem}"))
    return store.types


@pytest.fixture
def header(types):
    stamp = types["builtin_interfaces/msg/Time"](sec=1700000000, nanosec=123456789)
    return types["std_msgs/msg/Header"](stamp=stamp, frame_id="camera")


def motion(stamp_ns=1000):
    covariance = np.arange(16.0).reshape(4, 4) + 20 * np.eye(4)
    return Motion(stamp_ns, Box(10, 20, 30, 40), (5.0, -6.0), covariance, (0.5, -0.25))


TRACKED = Track(
    1000, TrackState.TRACKING, Box(11, 21, 30, 40), True, 0.97, 0.9, 0.0, motion(), image_size=(640, 480)
)
LOST = Track(
    1000, TrackState.LOST, presence=0.01, age_s=2.5, reason=because("absent for 2.5 s"), image_size=(640, 480)
)


def image(pixels, encoding, *, padding=0, big=0, height=None, width=None):
    """A message-like object with padded rows; ``pixels`` [rows, bytes]."""
    rows = np.pad(pixels, ((0, 0), (0, padding)), constant_values=99)
    return SimpleNamespace(
        height=pixels.shape[0] if height is None else height,
        width=width,
        encoding=encoding,
        header=SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=0)),
        is_bigendian=big,
        step=rows.shape[1],
        data=array("B", rows.tobytes()),
    )


def test_stamps_are_whole_nanoseconds(header):
    assert stamp_ns(header.stamp) == 1700000000123456789
    assert stamp_like(header.stamp, stamp_ns(header.stamp)) == header.stamp


@pytest.mark.parametrize("padding", [0, 5, 64])
@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_images_are_read_in_place_whatever_the_step(encoding, padding):
    kind = ENCODINGS[encoding]
    width, height = 16, 8
    rng = np.random.default_rng(5)
    rows = rng.integers(
        0, 256, (height * kind.rows_per_pair // 2, width * kind.bytes_per_pixel), dtype=np.uint8
    )
    message = image(rows, encoding, padding=padding, height=height, width=width)
    read = image_from_message(message)
    assert (read.width, read.height, read.encoding) == (width, height, encoding)
    assert np.array_equal(read.rows, rows)
    assert not read.rows.flags.writeable
    assert np.shares_memory(read.rows, np.frombuffer(message.data, np.uint8))
    assert to_bgr(read).shape == (height, width, 3)


def test_the_last_row_may_come_without_its_padding():
    rows = np.arange(4 * 6, dtype=np.uint8).reshape(4, 6)
    message = image(rows, "bgr8", padding=3, width=2)
    del message.data[-3:]
    assert np.array_equal(image_from_message(message).rows, rows)
    del message.data[-1:]
    with pytest.raises(InputError, match=r"image data has 32 bytes; 2 x 4 px in bgr8 with step 9 need 33"):
        image_from_message(message)


def test_big_endian_counts_for_16_bit_only():
    rows = np.zeros((4, 8), np.uint8)
    assert image_from_message(image(rows, "mono8", big=1, width=8)).width == 8
    ramp = np.arange(32, dtype=">u2").reshape(4, 8)
    message = image(ramp.view(np.uint8), "mono16", big=1, width=8)
    assert np.array_equal(image_from_message(message, levels=Levels("0,255")).rows.reshape(4, 8), ramp)


LOW, GAIN = 7500, 600 / 255  # a thermal image uses 600 of 65536 levels


@pytest.mark.parametrize("encoding", sorted(NARROWED))
@pytest.mark.parametrize("padding", [0, 3])
def test_16_bit_images_keep_the_contrast_of_the_same_images_in_8_bits(encoding, padding):
    narrow = ENCODINGS[NARROWED[encoding]]
    rows = np.repeat(np.tile(np.arange(256, dtype=np.uint8), (64, 1)), narrow.bytes_per_pixel, axis=1)
    wide = (LOW + rows * GAIN).round().astype("<u2").view(np.uint8)
    message = image(wide, encoding, padding=padding, width=256)
    read = image_from_message(message, levels=Levels(f"{LOW},{LOW + 600}"))
    assert read.encoding == NARROWED[encoding]
    assert np.abs(read.rows.astype(int) - rows).max() <= 1
    seen = image_from_message(message).rows.astype(int)
    assert 180 < seen.max() - seen.min() < 255


# Exif that asks for a quarter turn; boxes refer to the pixels as they are stored.
TURNED = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"


@pytest.mark.parametrize("has_thumbnail", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 3, 400_000])
def test_a_jpeg_in_a_larger_buffer_is_whole_and_a_truncated_one_is_not(header, padding, has_thumbnail):
    """V4L2 drivers deliver MJPEG with zeros up to the size of their buffer; a thumbnail is a JPEG itself."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    coded = cv2.imencode(".jpg", pixels)[1].tobytes()
    if has_thumbnail:
        small = TURNED + cv2.imencode(".jpg", pixels[:8, :8])[1].tobytes()
        coded = coded[:2] + b"\xff\xe1" + (len(small) + 2).to_bytes(2, "big") + small + coded[2:]
    whole = SimpleNamespace(header=header, format="jpeg", data=array("B", coded + bytes(padding)))
    read = image_from_compressed(whole)
    assert (read.width, read.height) == (96, 64)
    cut = SimpleNamespace(header=header, format="jpeg", data=array("B", coded[:-500] + bytes(padding)))
    with pytest.raises(InputError, match="no end marker"):
        image_from_compressed(cut)


@pytest.mark.parametrize("transport", ["raw", "compressed"])
def test_the_images_of_a_topic_are_told_of_before_they_are_decoded_and_share_a_range(transport):
    """Of 16 bits: it follows the scene as fast as the stamps go on."""
    reader, levels = ImageReader(transport, None, Levels()), Levels()
    for number, brightness in enumerate((0, 900, 400, 400)):
        wide = (LOW + brightness + np.tile(np.arange(256), (64, 1)) * GAIN).round().astype(np.uint16)
        message = image(wide.view(np.uint8), "mono16", padding=6, width=256)
        if transport == "compressed":
            message.data, message.format = array("B", cv2.imencode(".png", wide)[1].tobytes()), "png"
        message.header.stamp.nanosec = number * 200_000_000
        got = reader.read(message, 7_000_000_000 + number, 64 * 256)
        assert (got.header, got.stamp_ns) == (message.header, 10**9 + number * 200_000_000)
        assert (got.arrived_s, got.size) == (pytest.approx(7.0), (256, 64))
        assert got.nbytes == (64 * 256 if transport == "raw" else len(message.data))
        assert np.array_equal(to_bgr(got.image())[..., 0], levels.reduced(wide, got.stamp_ns))
        with pytest.raises(InputError, match="at most 16383 are read"):
            reader.read(message, 0, 64 * 256 - 1)
        alone = {"raw": image_from_message, "compressed": image_from_compressed}[transport]
        with pytest.raises(InputError, match="at most 16383 are read"):
            alone(message, 64 * 256 - 1)
        # Of each alone the range is another one.
        assert (brightness == 0) == np.array_equal(to_bgr(alone(message)), to_bgr(got.image()))


def test_a_frame_id_is_taken_up_to_its_limit():
    check_header(SimpleNamespace(frame_id="x" * MAX_FRAME_ID))
    with pytest.raises(InputError, match=f"has {MAX_FRAME_ID + 1} characters"):
        check_header(SimpleNamespace(frame_id="x" * (MAX_FRAME_ID + 1)))


def test_16_bit_png_are_read_as_their_raw_images(header):
    wide = (LOW + np.tile(np.arange(256), (64, 1)) * GAIN).round().astype(np.uint16)
    data = array("B", cv2.imencode(".png", wide)[1].tobytes())
    message = SimpleNamespace(header=header, format="16UC1; png compressed", data=data)
    raw = image_from_message(image(wide.view(np.uint8), "16UC1", width=256))
    assert np.array_equal(to_bgr(image_from_compressed(message)), to_bgr(raw))
    shown = to_bgr(image_from_compressed(message, levels=Levels("7000,9000")))
    assert np.array_equal(shown[..., 0], Levels("7000,9000").reduced(wide, 0))


@pytest.mark.parametrize("kind", ["cut off", "of numbers"])
def test_a_coded_image_without_pixels_of_8_or_16_bits_is_refused(header, kind):
    coded = cv2.imencode(".tiff", np.ones((8, 8, 3), np.float32))[1].tobytes()
    if kind == "cut off":
        coded = cv2.imencode(".png", np.ones((64, 64), np.uint8))[1].tobytes()[:40]
    with pytest.raises(InputError, match=rf"{len(coded)} bytes\) can't be decoded"):
        image_from_compressed(SimpleNamespace(header=header, format="x", data=array("B", coded)))


def test_an_encoding_that_only_cv_bridge_knows_is_read_through_it(monkeypatch):
    message = image(np.zeros((4, 8), np.uint8), "nv24", width=4)
    monkeypatch.setitem(sys.modules, "cv_bridge", None)  # as where it is not installed
    with pytest.raises(InputError, match=r"'nv24' is not supported.*install cv_bridge"):
        image_from_message(message)

    class CvBridge:
        def imgmsg_to_cv2(self, msg, desired_encoding):
            assert desired_encoding == "bgr8"
            if msg.encoding != "nv24":
                raise ValueError("no conversion")
            return np.full((msg.height, msg.width, 3), 7, np.uint8)

    monkeypatch.setitem(sys.modules, "cv_bridge", SimpleNamespace(CvBridge=CvBridge))
    assert (to_bgr(image_from_message(message)) == 7).all()
    message.encoding = "32FC2"
    with pytest.raises(InputError, match=r"'32FC2' is not supported, and cv_bridge can't convert it"):
        image_from_message(message)


def test_pixels_go_into_a_message_and_come_back(types, header):
    pixels = np.random.default_rng(1).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    image_type = types["sensor_msgs/msg/Image"]
    for message in (
        fill_image(SimpleNamespace(header=header), pixels, "bgr8"),
        fill_image(SimpleNamespace(header=None), pixels, "bgr8", header),
        image_type(**image_fields(pixels, "bgr8", header), data=pixels.reshape(-1)),
    ):
        assert message.header is header
        assert np.array_equal(to_bgr(image_from_message(message)), pixels)


def test_every_field_of_the_box_is_given(types, header):
    kind = types["efftam_ros/msg/BoundingBox"]
    message = kind(**bbox_fields(TRACKED, About(header, 7)))
    assert message.selection == 7
    assert message.header is header
    assert (message.x, message.y, message.width, message.height) == (11.0, 21.0, 30.0, 40.0)
    assert (message.valid, message.measured, message.state) == (True, True, 2)
    assert (message.image_width, message.image_height) == (640, 480)
    given = set(bbox_fields(TRACKED, About(header)))
    assert given == {f.name for f in fields(kind)} - {"__msgtype__"} - {n for n in dir(kind) if n.isupper()}
    assert math.isnan(message.likeness)
    assert bbox_fields(replace(TRACKED, likeness=0.75), About(header))["likeness"] == 0.75


def test_a_box_that_is_not_known_is_not_a_number(header):
    message = bbox_fields(LOST, About(header))
    assert not message["valid"]
    assert all(math.isnan(message[name]) for name in ("x", "y", "width", "height"))
    assert message["age"] == 2.5
    assert message["reason"] == "absent for 2.5 s"


def test_the_velocity_of_a_tracked_target(types, header):
    kind = types["efftam_ros/msg/TargetVelocity"]
    later = motion(stamp_ns=5_000_000_007)
    seen = Bearing(0.1, -0.2, 0.3, -0.4, np.diag([0.01, 0.02]), np.array([[1.0, 2.0], [2.0, 5.0]]))
    soon = Bearing(0.13, -0.24, 0.3, -0.4, np.diag([0.03, 0.04]), np.eye(2))
    message = kind(**velocity_fields(TRACKED, About(header, 7), later, seen, soon))
    assert message.valid
    assert (message.selection, message.measured, message.age) == (7, True, 0.0)
    assert message.presence == pytest.approx(0.97)
    assert (message.width, message.height, message.width_rate, message.height_rate) == (
        30.0,
        40.0,
        0.5,
        -0.25,
    )
    assert message.reason == ""
    assert (message.center_x, message.center_y) == (25.0, 40.0)
    assert (message.velocity_x, message.velocity_y) == (5.0, -6.0)
    assert np.array_equal(message.covariance, motion().covariance.ravel())
    assert stamp_ns(message.predicted_stamp) == 5_000_000_007
    assert (message.predicted_x, message.predicted_width) == (10.0, 30.0)
    assert (message.has_bearing, message.azimuth, message.elevation_rate) == (True, 0.1, -0.4)
    assert message.rate_covariance.tolist() == [1.0, 2.0, 2.0, 5.0]
    assert message.bearing_covariance.tolist() == [0.01, 0.0, 0.0, 0.02]
    assert (message.predicted_azimuth, message.predicted_elevation) == (0.13, -0.24)
    assert message.predicted_bearing_covariance.tolist() == [0.03, 0.0, 0.0, 0.04]
    given = set(velocity_fields(LOST, About(header)))
    assert given == {f.name for f in fields(kind)} - {"__msgtype__"} - {n for n in dir(kind) if n.isupper()}


def test_what_is_published_of_a_target_is_read_back_as_it_was(header):
    camera = CameraMotion(np.array([[1.0, 0.0, 3.0], [0.0, 1.0, -4.0], [0.0, 0.0, 1.0]]))
    track = replace(
        TRACKED,
        confidence=0.6,
        likeness=0.75,
        age_s=0.25,
        measured=False,
        state=TrackState.COASTING,
        camera=camera,
    )
    seen = Bearing(0.1, -0.2, 0.3, -0.4, np.eye(2), np.eye(2))
    about = About(header, 7, target_id=3, steered=False)
    common = (stamp_ns(header.stamp), 3, TrackState.COASTING, 7, "", False, 0.25)
    box = box_report(SimpleNamespace(**bbox_fields(track, about)))
    assert box == BoxReport(*common, (640, 480), Box(11, 21, 30, 40), 0.6, 0.97, 0.9, 0.75, steered=False)
    motion = motion_report(SimpleNamespace(**velocity_fields(track, about, bearing=seen)))
    read = MotionReport(
        *common, True, (5.0, -6.0), True, 0.1, -0.2, 0.3, -0.4, 5.0, (1.0, 0.0, 0.0, 1.0), False
    )
    assert motion == read


@pytest.mark.parametrize("state", TrackState)
def test_only_a_confirmed_motion_may_be_steered_by(header, state):
    track = replace(TRACKED, state=state)
    box, velocity = bbox_fields(track, About(header)), velocity_fields(track, About(header))
    for message in (box, velocity):
        assert message["valid"] == (state in (TrackState.TRACKING, TrackState.COASTING))
        assert bool(message["reason"]) != message["valid"]
    # Known, but not to be steered by.
    assert velocity["velocity_x"] == 5.0
    assert box["x"] == 11.0


@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [(-14.9, 20, True), (-15.1, 20, False), (624.9, 20, True), (625.1, 20, False), (11, 460.1, False)],
)
def test_a_box_whose_centre_left_the_image_is_not_to_be_steered_by(header, x, y, inside):
    """The box is 30 x 40 px, the image 640 x 480."""
    box = Box(x, y, 30, 40)
    for track in (
        replace(TRACKED, box=box),
        replace(TRACKED, motion=replace(motion(), box=box)),
        replace(TRACKED, state=TrackState.COASTING, measured=False, box=box),
    ):
        for message in (bbox_fields(track, About(header)), velocity_fields(track, About(header))):
            assert message["valid"] == inside
            assert (message["reason_code"] == ReasonCode.CENTER_OUTSIDE) != inside
            assert not math.isnan(message.get("x", message.get("center_x")))


def test_a_box_to_be_steered_by_may_have_a_reason_and_a_velocity_has_none(header):
    hidden = replace(TRACKED, state=TrackState.COASTING, measured=False, reason=because("hidden"))
    for fields_of, reason in ((bbox_fields, "hidden"), (velocity_fields, "")):
        message = fields_of(hidden, About(header))
        assert (message["valid"], message["reason"]) == (True, reason)


def test_a_withheld_answer_says_why_in_both_messages(header):
    for fields_of in (bbox_fields, velocity_fields):
        message = fields_of(TRACKED, About(header, withheld=ReasonCode.NODE_ENDS.reason()))
        assert (message["valid"], message["reason"]) == (False, "the node is shutting down")
        assert message["reason_code"] == ReasonCode.NODE_ENDS


def test_without_a_motion_no_number_stands(header):
    seen = Bearing(0.1, -0.2, 0.3, -0.4, np.eye(2), np.eye(2))
    track = replace(TRACKED, motion=None)
    message = velocity_fields(
        track, About(header, 7, withheld=because("no image for 0.3 s")), motion(9), seen, seen
    )
    assert not message["valid"]
    assert message["predicted_stamp"] == header.stamp
    assert not message["has_bearing"]
    told = {"age", "presence"}
    numbers = [v for name, v in message.items() if isinstance(v, float | np.ndarray) and name not in told]
    assert len(numbers) == 24
    assert all(np.isnan(v).all() for v in numbers)


def test_the_states_are_the_same_numbers_in_both_messages(types):
    for kind in ("BoundingBox", "TargetVelocity"):
        message = types[f"efftam_ros/msg/{kind}"]
        assert {s.name: getattr(message, s.name) for s in TrackState} == {s.name: s.value for s in TrackState}
    result = types["efftam_ros/msg/SelectionResult"]
    assert {o.name: getattr(result, o.name) for o in Outcome} == {o.name: o.value for o in Outcome}


def test_what_is_said_of_valid_is_the_same_in_both_messages():
    said = {
        name: (MESSAGES / f"{name}.msg").read_text().split("# valid means")[1].split("# A process")[0]
        for name in ("BoundingBox", "TargetVelocity")
    }
    assert said["BoundingBox"] == said["TargetVelocity"]
    assert all(state.name in said["BoundingBox"] for state in TrackState)


def selection(**changes):
    blank = {
        "kind": 0, "units": 0, "target_id": 0, "x": 0.0, "y": 0.0, "width": 0.0, "height": 0.0,
        "points": [], "labels": [], "mask": None,
    }  # fmt: skip
    return SimpleNamespace(**(blank | changes))


def test_normalized_selections_scale_with_the_image():
    box = selection(units=1, x=0.25, y=0.5, width=0.1, height=0.2)
    assert selection_prompt(box, 640, 480).box == Box(160, 240, 64, 96)
    point = selection(kind=1, units=1, points=[SimpleNamespace(x=0.5, y=0.25)], labels=[1])
    assert selection_prompt(point, 640, 480).points == ((320.0, 120.0),)


def point(x: float) -> SimpleNamespace:
    return SimpleNamespace(x=x, y=10.0)


def blank(side: int, encoding: str = "mono8"):
    return image(np.full((side, side), 127, np.uint8), encoding, width=side)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"units": 4}, "4; use 0 PIXELS, 1 NORMALIZED"),
        ({"kind": 3}, "CLEAR"),
        ({"x": 0.4, "y": 0.4, "width": 0.1, "height": 0.99}, "set units to NORMALIZED"),
        ({"x": 5, "y": 5, "width": 30, "height": 0.9}, "30 x 0.9 px, less than a pixel"),
        ({"x": 5, "y": 5, "width": 0.9, "height": 30}, "0.9 x 30 px, less than a pixel"),
        ({"units": 1, "x": 10, "y": 10, "width": 0.2, "height": 1.51}, "0.2 x 1.51 .*at most 1.5 .*PIXELS"),
        ({"x": 20, "y": 10, "width": 60, "height": 50}, "20, 10, 40, 40"),  # edges
        ({"kind": 1, "points": [point(5.0)]}, "1 points and 0 labels"),
        ({"kind": 1, "points": [point(5.0)], "labels": [7]}, "label is 7"),
        ({"kind": 1, "points": [point(65.0)], "labels": [1]}, "outside the image of 64 x 64"),
        ({"kind": 2, "mask": blank(64)}, "no pixel set"),
        ({"kind": 2, "mask": blank(32)}, "32 x 32 px, the image 64 x 64"),
        ({"kind": 2, "mask": blank(64, "rgb8")}, "'rgb8'; give mono8"),
        ({"kind": 2, "mask": image(np.zeros((64, 64), np.uint8), "mono8", width=64, height=65)}, "truncated"),
    ],
)
def test_a_selection_that_can_not_be_is_refused_with_value_and_remedy(wrong, said):
    with pytest.raises(InputError, match=said):
        selection_prompt(selection(**wrong), 64, 64)


def test_a_box_of_exactly_a_pixel_and_of_exactly_the_most_shares_is_taken():
    assert selection_prompt(selection(x=5, y=5, width=1.0, height=1.0), 64, 64).box.area == 1.0
    assert selection_prompt(selection(units=1, width=1.5, height=1.5), 64, 64).box.width == 96.0


def test_a_mask_marks_what_is_above_127():
    rows = np.zeros((8, 16), np.uint8)
    rows[2:4, 5:9], rows[5, 5] = 255, 127
    prompt = selection_prompt(selection(kind=2, mask=image(rows, "mono8", width=16)), 16, 8)
    assert prompt.mask.sum() == 8
    assert prompt.box is None


def camera_info(**changes):
    k = [500.0, 0, 319.5, 0, 500.0, 239.5, 0, 0, 1]
    roi = SimpleNamespace(x_offset=0, y_offset=0, width=0, height=0)
    info = {
        "width": 640, "height": 480, "k": k, "d": [], "distortion_model": "plumb_bob", "p": [0.0] * 12,
        "binning_x": 0, "binning_y": 0, "roi": roi,
    }  # fmt: skip
    return SimpleNamespace(**(info | changes))


def k(fx=500.0, cx=319.5, cy=239.5):
    return [fx, 0, cx, 0, fx, cy, 0, 0, 1]


BINNED = {"width": 1280, "height": 960, "binning_x": 2, "binning_y": 2}
REGION = SimpleNamespace(x_offset=300, y_offset=60, width=400, height=200)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"width": 2560, "height": 1920, "binning_x": 4, "binning_y": 4},
            r"binning 4.*\(319\.5, 239\.5\).*2560 x 1920",
        ),
        (BINNED, r"binning 2, .* centre of 1280 x 960"),
        ({"roi": REGION}, r"400 x 200 px at \(300, 60\), outside its image of 640 x 480"),
        (BINNED | {"k": k(cx=200.0, cy=479.5)}, r"binning 2, .*\(200, 479\.5\) px"),
        (BINNED | {"k": k(cx=639.5, cy=200.0)}, r"binning 2, .*\(639\.5, 200\) px"),
        ({"k": k(cx=0.0, cy=0.0)}, r"principal point \(0, 0\) px, .* in an image of 640 x 480"),
        ({"k": k(cx=700.0)}, r"principal point \(700, 239\.5\)"),
        ({"k": k(fx=1.0)}, r"focal length 1 px for a side of 640 px, a field of view of 179\.\d degrees"),
        ({"k": k(fx=1e5)}, r"field of view of 0\.\d degrees; 1 to 170 are possible"),
    ],
)
def test_a_camera_info_that_can_not_be_is_refused_with_its_numbers(changes, words):
    with pytest.raises(InputError, match=words):
        camera_model(camera_info(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        BINNED | {"k": k(cx=639.5, cy=479.5)},
        BINNED | {"k": k(cx=639.5, cy=149.5), "height": 300},
        {"k": k(cx=200.0, cy=300.0)},
        {"k": k(fx=60.0)},  # 159 degrees
        {"k": k(fx=20000.0)},  # 1.8
        {"k": [0.0] * 9},
    ],
)
def test_a_camera_info_that_can_be_is_taken(changes):
    assert camera_model(camera_info(**changes)).width == 640


def test_a_lens_that_is_not_wanted_does_not_matter():
    info = camera_info(distortion_model="wide", d=[0.1, 0.2])
    assert camera_model(info, with_distortion=False).intrinsics.distort is None


def test_of_rectified_images_the_projection_is_what_must_fit_the_binning():
    info = camera_info(**BINNED, p=[500.0, 0, 639.5, 0, 0, 500.0, 479.5, 0, 0, 0, 1, 0])
    assert camera_model(info, rectified=True).intrinsics.cx == (639.5 + 0.5) / 2 - 0.5
    info.k, info.p[2] = k(cx=639.5, cy=479.5), 319.5
    assert camera_model(info).width == 640
    with pytest.raises(InputError, match=r"binning 2, .*\(319\.5, 479\.5\) px"):
        camera_model(info, rectified=True)


def region(width: int, height: int, x_offset: int = 100, y_offset: int = 60):
    return SimpleNamespace(x_offset=x_offset, y_offset=y_offset, width=width, height=height)


@pytest.mark.parametrize(
    ("changes", "size", "centre"),
    [
        ({}, (640, 480), (320.0, 240.0)),
        # The principal point, 319.5 + 0.5 in edges: (320 - 100) / 2.
        ({"roi": region(400, 200), "binning_x": 2, "binning_y": 2}, (200, 100), (110.0, 90.0)),
        ({"roi": region(400, 400, 240, 80)}, (400, 400), (80.0, 160.0)),  # up to the last row and column
        ({"binning_x": 2, "binning_y": 1}, (320, 480), (160.0, 240.0)),
        ({"binning_x": 1, "binning_y": 4}, (640, 120), (320.0, 60.0)),
    ],
)
def test_camera_info_is_for_the_image_that_is_delivered(changes, size, centre):
    model = camera_model(camera_info(**changes))
    assert (model.width, model.height) == size
    assert model.intrinsics.ray(*centre) == pytest.approx((0.0, 0.0))


@pytest.mark.parametrize(("width", "height"), [(0, 0), (0, 200), (300, 0)])
def test_a_region_without_width_or_height_stands_for_the_whole_image(width, height):
    model = camera_model(camera_info(roi=region(width, height)))
    assert (model.width, model.height) == (640, 480)
