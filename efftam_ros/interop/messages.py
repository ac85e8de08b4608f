"""Conversion between message fields and the tracker's types.

Nothing here imports ROS: messages are read by attribute, and what is to be published is returned as a
dictionary of all fields, so that the same functions serve rclpy's classes and those of the rosbags library
(``BoundingBox(**bbox_fields(track, About(header)))``).
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.bearing import Bearing, Intrinsics
from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image, Motion, Prompt, Track, TrackState
from efftam_ros.runtime.image.encodings import ENCODINGS, NARROWED, check_image
from efftam_ros.runtime.image.levels import Levels
from efftam_ros.runtime.image.limits import MOST_PIXELS, check_size, coded_size
from efftam_ros.runtime.image.prompts import MOST_POINTS, check_prompt

NANOSECONDS = 1_000_000_000
# States in which control may use the motion: the target is confirmed and not given up.
STEERABLE = (TrackState.TRACKING, TrackState.COASTING)
# Reasons for the other states, where the tracker gives none.
UNCLAIMED = {
    TrackState.IDLE: "no target is selected",
    TrackState.ACQUIRING: "what is seen is not confirmed yet",
    TrackState.LOST: "the target is lost",
}
# Numbers of what is not known.
_NAN = math.nan
UNKNOWN_MOTION = Motion(0, Box(_NAN, _NAN, _NAN, _NAN), (_NAN, _NAN), np.full((4, 4), _NAN), (_NAN, _NAN))
UNKNOWN_BEARING = Bearing(_NAN, _NAN, _NAN, _NAN, np.full((2, 2), _NAN), np.full((2, 2), _NAN))
MOST_FRAME_ID = 256
"""Most characters of a frame_id: it is copied into every answer and stored with every kept image."""
TRANSPORT_SUFFIXES = ("/compressed", "/ffmpeg", "/foxglove")
"""Of topics, as image_transport names them."""
OFF_CENTRE = 0.3
"""Least share of the sensor's width and height at which the principal point of a binned camera lies."""
LEAST_VIEW_DEG, MOST_VIEW_DEG = 1.0, 170.0
"""Field of view of a side that a calibration can have."""
MOST_NORMALIZED = 1.5
"""Largest side of a normalised box; above 1 so that a target may extend beyond the image."""

# A stamp is ahead when it lies this far beyond what the arrivals allow, ns, and its step is this many times
# the longest of the last ones.
AHEAD_NS, STEPS = 250_000_000, 3
# Images that the judgement is based on, and the fewest that make a stream.
KEPT, FEWEST = 30, 5


class Kind(IntEnum):
    """TargetSelection.kind."""

    BOX = 0
    POINTS = 1
    MASK = 2
    CLEAR = 3


class Outcome(IntEnum):
    """SelectionResult.outcome: what became of a command."""

    ACCEPTED = 0
    REFUSED = 1
    CLEARED = 2


class Units(IntEnum):
    """TargetSelection.units."""

    PIXELS = 0
    NORMALIZED = 1


@dataclass(frozen=True)
class CameraModel:
    """Content of a camera_info: the calibration (None: uncalibrated) and the image size it is for, px."""

    intrinsics: Intrinsics | None
    width: int
    height: int


def stamp_ns(stamp: Any) -> int:
    """Convert a builtin_interfaces/Time to integer nanoseconds."""
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def stamp_like(stamp: Any, ns: int) -> Any:
    """Convert nanoseconds to a message of the same class as ``stamp``."""
    return type(stamp)(sec=ns // NANOSECONDS, nanosec=ns % NANOSECONDS)


def check_header(header: Any) -> None:
    """Raise InputError when an image's header is too large to be copied into answers."""
    if len(header.frame_id) > MOST_FRAME_ID:
        raise InputError(
            f"image frame_id {shown(header.frame_id)} has {len(header.frame_id)} characters; give at most"
            f" {MOST_FRAME_ID}"
        )


class StampGuard:
    """Withholds an image whose stamp goes back, or ahead of its arrival, in a steady stream.

    When the next image goes on from the withheld one, the clock was set, or a bag began again: its stamps are
    taken from then on.
    """

    def __init__(self) -> None:
        self._offsets: deque[int] = deque(maxlen=KEPT)  # stamp - arrival
        self._steps: deque[int] = deque(maxlen=KEPT)
        self._last_ns = 0
        self._withheld_ns: int | None = None  # stamp of the image before, if that was withheld

    def check(self, stamp_ns: int, arrived_ns: int) -> None:
        """Take the next image; raises InputError when it is withheld. ``arrived_ns``: arrival on a steady
        clock, or the recording time in a bag."""
        offset_ns = stamp_ns - arrived_ns
        wrong_ns = self._wrong_ns(stamp_ns, offset_ns)
        if wrong_ns:
            before, self._withheld_ns = self._withheld_ns, stamp_ns
            if before is None or stamp_ns <= before:
                where = "ahead of the arrival of its image" if wrong_ns > 0 else "before that of the last one"
                raise InputError(
                    f"the stamp {stamp_ns * 1e-9:.3f} s is {abs(wrong_ns) * 1e-9:.3f} s {where}: the image is"
                    " not used; correct the driver's stamps"
                )
            self._offsets.clear()
            self._steps.clear()
        elif self._offsets:
            self._steps.append(stamp_ns - self._last_ns)
        self._withheld_ns, self._last_ns = None, stamp_ns
        self._offsets.append(offset_ns)

    def _wrong_ns(self, stamp_ns: int, offset_ns: int) -> int:
        """How far the stamp is ahead, or back if negative; 0 when it can be."""
        if len(self._offsets) < FEWEST:
            return 0
        step_ns = stamp_ns - self._last_ns
        if step_ns < 0:
            return step_ns
        # Images may arrive late, never early: the least delayed one shows the clocks' offset.
        ahead_ns = offset_ns - max(self._offsets)
        return ahead_ns if ahead_ns > AHEAD_NS and step_ns > STEPS * max(self._steps) else 0


def image_from_message(msg: Any, most_pixels: int = MOST_PIXELS, levels: Levels | None = None) -> Image:
    """View a sensor_msgs/Image as a checked `Image`, without copying ``msg.data`` unless it has 16 bits.

    ``levels``: reduces 16-bit pixels; None: each image has a range of its own. An encoding that only
    cv_bridge knows is converted by it where it is installed.

    Raises:
        InputError: Unknown encoding, zero size, too many pixels, a step shorter than a row, too little data.
    """
    width, height, step = int(msg.width), int(msg.height), int(msg.step)
    name = NARROWED.get(msg.encoding, msg.encoding)
    encoding = ENCODINGS.get(name)
    data = np.frombuffer(msg.data, np.uint8)
    if width < 1 or height < 1:
        check_image(Image(data[:0].reshape(0, 0), width, height, "bgr8"))
    check_size(width, height, most_pixels)
    if encoding is None:
        return _converted(msg)
    is_wide = name != msg.encoding
    row = width * encoding.bytes_per_pixel * (2 if is_wide else 1)
    if step < row:
        raise InputError(
            f"image step is {step} bytes; {width} px in {msg.encoding} have {row}: correct step or width"
        )
    rows = height * encoding.rows_per_pair // 2
    # The last row may come without its padding.
    need = (rows - 1) * step + row
    if data.size < need:
        raise InputError(
            f"image data has {data.size} bytes; {width} x {height} px in {msg.encoding} with step {step} need"
            f" {need}: the image is truncated"
        )
    view = np.lib.stride_tricks.as_strided(data, (rows, row), (step, 1), writeable=False)
    if is_wide:
        wide = np.ascontiguousarray(view).view(">u2" if msg.is_bigendian else "<u2")
        view = (levels or Levels()).reduced(wide.astype(np.uint16, copy=False), stamp_ns(msg.header.stamp))
    image = Image(view, width, height, name)
    check_image(image)
    return image


def _converted(msg: Any) -> Image:
    """An image in an encoding that `ENCODINGS` lacks, converted to bgr8 by cv_bridge. Raises InputError."""
    known = ", ".join([*ENCODINGS, *NARROWED])
    try:
        # Only where such an image comes.
        from cv_bridge import CvBridge

        pixels = CvBridge().imgmsg_to_cv2(msg, "bgr8")
    except ImportError:
        raise InputError(
            f"image encoding {shown(msg.encoding)} is not supported; publish one of {known}, or install"
            " cv_bridge (ros-$ROS_DISTRO-cv-bridge), which may convert it"
        ) from None
    except Exception as error:  # CvBridgeError, and what numpy and OpenCV raise
        raise InputError(
            f"image encoding {shown(msg.encoding)} is not supported, and cv_bridge can't convert it"
            f" ({shown(error)}); publish one of {known}"
        ) from None
    return Image.from_array(np.ascontiguousarray(pixels, np.uint8))


def compressed_size(msg: Any, most_pixels: int = MOST_PIXELS) -> tuple[int, int]:
    """Read width and height of a sensor_msgs/CompressedImage from its first bytes.

    Raises InputError when it has too many pixels or none of the formats of `coded_size`.
    """
    width, height = coded_size(msg.data, f"compressed image ({shown(msg.format)})")
    check_size(width, height, most_pixels)
    return width, height


def image_from_compressed(msg: Any, most_pixels: int = MOST_PIXELS, levels: Levels | None = None) -> Image:
    """Decode a sensor_msgs/CompressedImage in a format of `coded_size` to a bgr8 `Image`.

    ``levels``: see `image_from_message`. Raises InputError when it can't be decoded or has too many pixels,
    which is checked before decoding.
    """
    compressed_size(msg, most_pixels)
    data = np.frombuffer(msg.data, np.uint8)
    # OpenCV may fill the missing part of a truncated JPEG with grey without an error. The end marker can't
    # occur in coded pixels, only in a thumbnail, which comes first; cameras may add padding after it, V4L2
    # drivers zeros up to the size of their buffer.
    end = len(bytes(data).rstrip(b"\0"))
    if data[:2].tobytes() == b"\xff\xd8" and b"\xff\xd9" not in data[end // 2 : end].tobytes():
        raise InputError(f"compressed image of {data.size} bytes has no end marker: the JPEG is truncated")
    # The EXIF orientation is not applied: boxes refer to pixels as the camera delivered them.
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels = cv2.imdecode(data, flags) if data.size else None
    except cv2.error:
        pixels = None
    if pixels is None or pixels.dtype not in (np.uint8, np.uint16):
        raise InputError(
            f"compressed image ({shown(msg.format)}, {data.size} bytes) can't be decoded: use jpeg or png"
        )
    if pixels.dtype == np.uint16:
        pixels = (levels or Levels()).reduced(pixels, stamp_ns(msg.header.stamp))
    return Image.from_array(np.asarray(pixels, np.uint8))


class Received(NamedTuple):
    """What an image message holds. ``nbytes``: memory that keeping it costs; ``size``: width and height, px;
    ``pixels``: the image, or a function that decodes it and raises InputError."""

    header: Any
    nbytes: int
    size: tuple[int, int]
    pixels: Image | Callable[[], Image]

    def image(self) -> Image:
        return self.pixels if isinstance(self.pixels, Image) else self.pixels()


class ImageReader:
    """Reads the image messages of one topic, in order.

    ``transport``: raw, compressed, or that of a video; ``header``: the class of std_msgs/Header; ``levels``:
    see `image_from_message`.
    """

    def __init__(self, transport: str, header: Callable[..., Any], levels: Levels | None = None) -> None:
        self._is_raw, self._header, self.levels = transport == "raw", header, levels
        self._decoder: Any = None
        if transport not in ("raw", "compressed"):
            # Imported only for videos.
            from efftam_ros.interop.coded_video import VideoDecoder

            self._decoder = VideoDecoder()

    def read(self, message: Any, arrived_ns: int, most_pixels: int = MOST_PIXELS) -> Received:
        """``arrived_ns``: arrival on a steady clock, or the recording time. A raw image and a video's are
        checked, as the next ones of a video need it; decoding takes milliseconds, and is left to who uses the
        image. Raises InputError."""
        if self._is_raw:
            image = image_from_message(message, most_pixels, self.levels)
            return Received(message.header, image.rows.nbytes, (image.width, image.height), image)
        if self._decoder is not None:
            width, height, pixels = self._decoder.decode(message, arrived_ns, most_pixels)
            # The decoded image is kept, of 1.5 bytes per pixel.
            return Received(
                header_of(message, self._header), width * height * 3 // 2, (width, height), pixels
            )
        size = compressed_size(message, most_pixels)
        pixels = partial(image_from_compressed, message, most_pixels, self.levels)
        return Received(message.header, len(message.data), size, pixels)


def header_of(message: Any, make: Callable[..., Any]) -> Any:
    """The header of an image message; ``make`` is the class of std_msgs/Header, for those that have none."""
    if hasattr(message, "header"):
        return message.header
    return make(stamp=message.timestamp, frame_id=message.frame_id)


def image_fields(pixels: NDArray[np.uint8], encoding: str, header: Any) -> dict[str, Any]:
    """Return all fields of a sensor_msgs/Image except ``data``, for C-contiguous uint8 pixels [H, W] or [H,
    W, C].

    ``data`` is left to the caller because the fast way to set it differs: an ``array.array`` filled by
    ``frombytes`` for rclpy, ``pixels.reshape(-1)`` for rosbags.
    """
    height, width = pixels.shape[:2]
    return {
        "header": header,
        "height": height,
        "width": width,
        "encoding": encoding,
        "is_bigendian": 0,
        "step": pixels.strides[0],
    }


def fill_image(message: Any, pixels: NDArray[np.uint8], encoding: str, header: Any = None) -> Any:
    """Store C-contiguous uint8 pixels [H, W] or [H, W, C] in an rclpy Image message and return it."""
    for name, value in image_fields(pixels, encoding, message.header if header is None else header).items():
        setattr(message, name, value)
    # Fast with and without rclpy's field checks; other types are checked pixel by pixel.
    data = array("B")
    data.frombytes(pixels.data.cast("B"))
    message.data = data
    return message


def not_valid(track: Track, withheld: str = "") -> str:
    """Return why control must not use the track, i.e. why ``valid`` is false in the messages; empty when it
    may.

    ``withheld``: an additional reason from outside the track, such as images that stopped.
    """
    if withheld:
        return withheld
    box, motion = track.box, track.motion
    if track.state not in STEERABLE or box is None or motion is None:
        return track.reason or UNCLAIMED.get(track.state, "the motion is not known")
    width, height = track.image_size
    for place in (box, motion.box):
        cx, cy = place.x + place.width / 2, place.y + place.height / 2
        if not (0 <= cx <= width and 0 <= cy <= height):
            return f"the box's centre ({cx:.0f}, {cy:.0f}) px is outside the image of {width} x {height} px"
    return ""


class About(NamedTuple):
    """What an answer is about: the image's header, the number of the selection that it answers, the target,
    and whether that is the one to steer by. ``withheld``: see `not_valid`."""

    header: Any
    selection: int = 0
    target_id: int = 0
    steered: bool = True
    withheld: str = ""


def bbox_fields(track: Track, about: About) -> dict[str, Any]:
    """Return all fields of efftam_ros/BoundingBox."""
    fields = _answer_fields(track, about)
    width, height = track.image_size
    scores = {"quality": float(track.quality), "likeness": float(track.likeness)}
    more = {
        "image_width": int(width),
        "image_height": int(height),
        "reason": fields["reason"] or track.reason,
    }
    return fields | _box_fields(track.box) | scores | more


def velocity_fields(
    track: Track,
    about: About,
    predicted: Motion | None = None,
    bearing: Bearing | None = None,
    predicted_bearing: Bearing | None = None,
) -> dict[str, Any]:
    """Return all fields of efftam_ros/TargetVelocity; unknown numbers are NaN. ``predicted``: motion at the
    time of publishing, default: at the image's stamp."""
    if track.motion is None:
        predicted = bearing = predicted_bearing = None
    motion, later = track.motion or UNKNOWN_MOTION, predicted or track.motion
    seen, soon = bearing or UNKNOWN_BEARING, predicted_bearing or UNKNOWN_BEARING
    stamp = about.header.stamp
    return {
        **_answer_fields(track, about),
        "center_x": float(motion.box.cx),
        "center_y": float(motion.box.cy),
        "velocity_x": float(motion.velocity[0]),
        "velocity_y": float(motion.velocity[1]),
        "covariance": motion.covariance.flatten(),
        "width": float(motion.box.width),
        "height": float(motion.box.height),
        "width_rate": float(motion.size_rate[0]),
        "height_rate": float(motion.size_rate[1]),
        "predicted_stamp": stamp if later is None else stamp_like(stamp, later.stamp_ns),
        **{f"predicted_{name}": v for name, v in _box_fields(None if later is None else later.box).items()},
        "has_bearing": bearing is not None,
        "azimuth": seen.azimuth,
        "elevation": seen.elevation,
        "bearing_covariance": seen.covariance.flatten(),
        "azimuth_rate": seen.azimuth_rate,
        "elevation_rate": seen.elevation_rate,
        "rate_covariance": seen.rate_covariance.flatten(),
        "predicted_azimuth": soon.azimuth,
        "predicted_elevation": soon.elevation,
        "predicted_bearing_covariance": soon.covariance.flatten(),
    }


def _answer_fields(track: Track, about: About) -> dict[str, Any]:
    """The fields that BoundingBox and TargetVelocity have in common, with the same values."""
    reason = not_valid(track, about.withheld)
    return {
        "header": about.header,
        "target_id": about.target_id,
        "selection": about.selection,
        "state": int(track.state),
        "reason": reason,
        "valid": not reason,
        "measured": track.measured,
        "presence": float(track.presence),
        "age": float(track.age_s),
        "steered": about.steered,
    }


def _box_fields(box: Box | None) -> dict[str, float]:
    box = UNKNOWN_MOTION.box if box is None else box
    return {"x": float(box.x), "y": float(box.y), "width": float(box.width), "height": float(box.height)}


def bearing_of(
    motion: Motion | None, image_size: tuple[int, int], camera: CameraModel | None
) -> Bearing | None:
    """Compute the bearing of a motion; None without a motion or a calibrated camera.

    Raises InputError when the calibration is for another image size, or the distortion has no inverse there.
    """
    if camera is None or camera.intrinsics is None or motion is None:
        return None
    if (camera.width, camera.height) != tuple(image_size):
        width, height = image_size
        raise InputError(
            f"no bearing: camera_info is for {camera.width} x {camera.height} px, the image has"
            f" {width} x {height}; send the camera_info of this image topic"
        )
    try:
        centre = (motion.box.cx, motion.box.cy)
        return camera.intrinsics.bearing(centre, motion.velocity, motion.covariance)
    except InputError as refusal:
        raise InputError(f"no bearing: {refusal}") from None


def detections_message(vision: Any, tracks: Mapping[int, Track], header: Any) -> Any:
    """Build a vision_msgs/Detection2DArray with the boxes of the targets, by id.

    ``vision`` is the module ``vision_msgs.msg`` (4.x: Jazzy, Humble).
    """
    message = vision.Detection2DArray(header=header)
    for target_id, track in sorted(tracks.items()):
        if track.box is None:
            continue
        result = vision.ObjectHypothesisWithPose()
        result.hypothesis.class_id = "target"
        result.hypothesis.score = float(track.presence)
        detection = vision.Detection2D(header=header, id=str(target_id), results=[result])
        detection.bbox.center.position.x = float(track.box.cx)
        detection.bbox.center.position.y = float(track.box.cy)
        detection.bbox.size_x = float(track.box.width)
        detection.bbox.size_y = float(track.box.height)
        message.detections.append(detection)
    return message


def check_selection(msg: Any) -> Kind:
    """Return the kind of a TargetSelection. Raises InputError for an unknown kind or units."""
    for name, value, known in (("kind", msg.kind, Kind), ("units", msg.units, Units)):
        if value not in set(known):
            choices = ", ".join(f"{k.value} {k.name}" for k in known)
            raise InputError(f"selection {name} is {value}; use {choices}")
    return Kind(msg.kind)


def selection_prompt(msg: Any, width: int, height: int, most_pixels: int = MOST_PIXELS) -> Prompt:
    """Convert a TargetSelection of kind BOX, POINTS or MASK to a prompt for an image of this size, px.

    Raises:
        InputError: Values that are not finite, no area, outside the image, pixels where normalised
            coordinates are declared, different numbers of labels and points, too many points, or a mask that
            is empty, of another size or of too many pixels.
    """
    kind = check_selection(msg)
    sx, sy = (float(width), float(height)) if msg.units == Units.NORMALIZED else (1.0, 1.0)
    if kind is Kind.BOX:
        if msg.units == Units.NORMALIZED and max(msg.width, msg.height) > MOST_NORMALIZED:
            raise InputError(
                f"selection box is {msg.width:g} x {msg.height:g} in shares of the image; at most"
                f" {MOST_NORMALIZED:g} is taken: for pixels set units to PIXELS"
            )
        prompt = Prompt(box=Box(msg.x * sx, msg.y * sy, msg.width * sx, msg.height * sy))
    elif kind is Kind.POINTS:
        points = len(msg.points)
        if len(msg.labels) != points:
            raise InputError(
                f"selection has {points} points and {len(msg.labels)} labels; give one label each"
            )
        if points > MOST_POINTS:
            raise InputError(f"selection has {points} points; give at most {MOST_POINTS}")
        labels = tuple(int(label) for label in msg.labels)
        prompt = Prompt(points=tuple((p.x * sx, p.y * sy) for p in msg.points), labels=labels)
    elif kind is Kind.MASK:
        if msg.mask.encoding not in ("mono8", "8UC1"):
            raise InputError(f"selection mask has encoding {shown(msg.mask.encoding)}; give mono8")
        try:
            mask = image_from_message(msg.mask, most_pixels)
        except InputError as refusal:
            raise InputError(f"selection mask: {refusal}") from None
        marked = mask.rows > 127
        if not marked.any():
            raise InputError("selection mask has no pixel above 127; mark the target with 255")
        prompt = Prompt(mask=marked)
    else:
        raise InputError("selection kind is CLEAR; it marks nothing")
    check_prompt(prompt, width, height)  # now, while the sender waits for the response
    if prompt.box is not None and min(prompt.box.width, prompt.box.height) < 1.0:
        raise InputError(
            f"selection box is {prompt.box.width:g} x {prompt.box.height:g} px, less than a pixel;"
            " for numbers between 0 and 1 set units to NORMALIZED"
        )
    return prompt


def camera_model(msg: Any, rectified: bool = False, with_distortion: bool = True) -> CameraModel:
    """Read the camera model from a sensor_msgs/CameraInfo.

    ``rectified``: the images are rectified, so the projection matrix is used and the distortion is not.
    ``with_distortion``: False if it is not wanted; then an unknown distortion model does not matter.
    Raises InputError as `Intrinsics.from_camera_info` does.
    """
    _check_calibration(msg, rectified)
    intrinsics = Intrinsics.from_camera_info(
        [float(v) for v in msg.k],
        [float(v) for v in msg.d] if with_distortion else (),
        msg.distortion_model if with_distortion else "",
        p=[float(v) for v in msg.p] if rectified else None,
        offset=(int(msg.roi.x_offset), int(msg.roi.y_offset)),
        binning=(int(msg.binning_x), int(msg.binning_y)),
    )
    model = CameraModel(intrinsics, *delivered_size(msg))
    if intrinsics is not None:
        _check_lens(intrinsics, model.width, model.height)
    return model


def _check_calibration(msg: Any, rectified: bool) -> None:
    """Raise InputError where region, binning and principal point of a CameraInfo contradict each other."""
    roi, cx, cy = msg.roi, *((msg.p[2], msg.p[6]) if rectified else (msg.k[2], msg.k[5]))
    if (
        roi.width
        and roi.height
        and (roi.x_offset + roi.width > msg.width or roi.y_offset + roi.height > msg.height)
    ):
        raise InputError(
            f"camera_info has the region of interest {roi.width} x {roi.height} px at ({roi.x_offset},"
            f" {roi.y_offset}), outside its image of {msg.width} x {msg.height} px: correct the region"
        )
    binning = max(int(msg.binning_x), int(msg.binning_y))
    # A lens is centred on its sensor, so a principal point this far off is that of the binned image.
    is_off = min(cx / max(1, msg.width), cy / max(1, msg.height)) < OFF_CENTRE
    if binning > 1 and msg.k[0] and is_off:
        raise InputError(
            f"camera_info has the principal point ({cx:g}, {cy:g}) px, binning {binning} and"
            f" {msg.width} x {msg.height} px: K and P must be of the full resolution; correct them, or set"
            " binning to 0"
        )


def _check_lens(lens: Intrinsics, width: int, height: int) -> None:
    """Raise InputError for a camera that can't be: for the delivered image of this size."""
    if not (-0.5 <= lens.cx <= width - 0.5 and -0.5 <= lens.cy <= height - 0.5) or (lens.cx, lens.cy) == (
        0,
        0,
    ):
        raise InputError(
            f"camera_info has the principal point ({lens.cx:g}, {lens.cy:g}) px in an image of"
            f" {width} x {height} px: calibrate the camera again"
        )
    for side, focal_px in ((width, lens.fx), (height, lens.fy)):
        view_deg = math.degrees(2 * math.atan(side / 2 / focal_px))
        if not LEAST_VIEW_DEG <= view_deg <= MOST_VIEW_DEG:
            raise InputError(
                f"camera_info has the focal length {focal_px:g} px for a side of {side} px, a field of view"
                f" of {view_deg:.1f} degrees; {LEAST_VIEW_DEG:g} to {MOST_VIEW_DEG:g} can be: calibrate again"
            )


def camera_info_beside(image_topic: str) -> str:
    """The calibration's topic beside an image topic, as in image_transport: /camera/image_raw and
    /camera/image_raw/compressed -> /camera/camera_info."""
    for suffix in TRANSPORT_SUFFIXES:
        image_topic = image_topic.removesuffix(suffix)
    folder, slash, _ = image_topic.rpartition("/")
    return f"{folder}{slash}camera_info"


def delivered_size(msg: Any) -> tuple[int, int]:
    """Width and height, px, of the images that a sensor_msgs/CameraInfo belongs to: region of interest and
    binning applied."""
    roi = msg.roi
    # A region of zero size stands for the whole image.
    width, height = (roi.width, roi.height) if roi.width and roi.height else (msg.width, msg.height)
    return int(width) // max(1, int(msg.binning_x)), int(height) // max(1, int(msg.binning_y))
