"""The Python interface: tracks targets in a video, a folder, a camera or images that the caller gives."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import MAX_TARGETS, TrackerConfig
from efftam_ros.core.errors import BackendError, InputError, shown
from efftam_ros.core.geometry import Box
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.targets import NEXT_FREE, NO_PROMPTS, STEERED, Prompts, Step
from efftam_ros.core.types import Frame, Image, Prompt
from efftam_ros.core.types import TrackState as State
from efftam_ros.images.camera import is_live, open_source
from efftam_ros.images.headers import check_size
from efftam_ros.images.levels import AUTO
from efftam_ros.images.pixels import check_image
from efftam_ros.images.source import NS
from efftam_ros.images.streams.opening import DEFAULT_TRACK
from efftam_ros.runtime.backends import DEFAULT_BACKEND, PipelineConfig
from efftam_ros.runtime.opening import open_pipeline, open_targets

__all__ = ["BackendError", "InputError", "Result", "State", "Tracker"]

ENCODINGS = {"bgr": "bgr8", "rgb": "rgb8"}
MAX_SECONDS = 9.2e9
"""Largest time of an image, s, because times are stored as 64-bit integers of nanoseconds."""

ImageLike = NDArray[np.uint8] | Image
Source = str | os.PathLike[str] | int | Iterable[ImageLike | tuple[ImageLike, float | None]]


class ImageBox(NamedTuple):
    """A box in an image: left edge, top edge, width and height, px.

    Coordinates begin at the outer corner of the top left pixel. The right edge is at ``x + width``, and the
    bottom edge at ``y + height``.
    """

    x: float
    y: float
    width: float
    height: float

    def __repr__(self) -> str:
        return _rounded(self)


class Velocity(NamedTuple):
    """Velocity of the centre of the target's box in the image, px/s: ``x`` to the right, ``y`` down."""

    x: float
    y: float

    def __repr__(self) -> str:
        return _rounded(self)


class Result:
    """The tracker's answer for one target in one image. It can be copied and sent to another process.

    Attributes:
        target_id: Id of the target; 0 if only one target is followed.
        time: Time of the image, s.
        state: ACQUIRING, TRACKING, COASTING (not found in this image, box predicted) or LOST.
        box: The target's box, measured in this image or predicted; None while the target is LOST.
        measured: Whether ``box`` was measured in this image.
        velocity: Velocity of the box's centre, px/s; None while the target is LOST.
        confidence: Probability that a measured ``box`` is on the target, 0..1; NaN where nothing is measured,
            or the probability is not known.
        presence: Probability that something like the selected object is in view, 0..1.
        quality: The network's estimate of the mask's IoU with the target, 0..1.
        likeness: Likeness of the box to the selected target, -1..1; NaN where it is not known.
        age: Time since the box was last measured, s.
        reason: Why the target is not tracked; "" if it is tracked.
        reason_code: The code of ``reason`` (docs/reasons.md); 0 without a reason.
    """

    def __init__(self, owner: Tracker, step: Step, masked: bool) -> None:
        track = step.track
        motion = track.motion
        self.target_id: int = step.target_id
        self.time: float = track.stamp_ns / NS
        self.state: State = track.state
        self.box: ImageBox | None = None if track.box is None else _finite(ImageBox(*track.box.xywh()))
        self.measured: bool = track.measured
        self.velocity: Velocity | None = None if motion is None else _finite(Velocity(*motion.velocity))
        self.confidence: float = track.confidence
        self.presence: float = track.presence
        self.quality: float = track.quality
        self.likeness: float = track.likeness
        self.age: float = track.age_s
        self.reason: str = str(track.reason)
        self.reason_code: ReasonCode = track.reason.code
        self._owner: Tracker | None = owner
        self._mask: NDArray[np.uint8] | None = step.tracker.mask() if masked else None

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that a copied or pickled result has.

        A copy has no reference to the tracker. It contains the mask if the mask was read before the copy is
        made, or can be computed at that time.
        """
        if self._mask is None and self.measured:
            with suppress(InputError):
                return vars(self) | {"_owner": None, "_mask": self.mask}
        return vars(self) | {"_owner": None}

    @property
    def mask(self) -> NDArray[np.uint8] | None:
        """The target's pixels: uint8 [H, W], 255 on the target, 0 elsewhere; None if ``measured`` is False.

        The mask is computed when this property is first read or when the result is copied. The result and
        its copies then keep the mask. A mask that was not computed before the tracker received its next image
        is lost: reading it raises InputError, in the result and in later copies. A queue between processes
        copies a result at some later time, so read the mask before the result is put into a queue.
        """
        if self._mask is None and self.measured:
            if self._owner is None:
                raise InputError(
                    f"the mask of the result of time {self.time:.3f} s was not computed before this copy of"
                    " the result was made; read result.mask before the result is copied or sent"
                )
            self._mask = self._owner._mask_of(self)
        return self._mask

    def __repr__(self) -> str:
        return (
            f"Result(time={self.time:.3f} s, {self.state}, box={self.box}, velocity={self.velocity}, "
            f"presence={self.presence:.2f})"
        )


class Tracker:
    """Tracks one target or several. Not thread-safe.

    `close` frees the network. The tracker is also a context manager, which calls `close` at its end.
    """

    def __init__(
        self,
        backend: str = DEFAULT_BACKEND,
        bundle: str | os.PathLike[str] | None = None,
        precision: str = "auto",
        policy: str = "default",
        threads: int = 0,
        *,
        channels: str = "bgr",
        fps: float = 30.0,
        max_targets: int = 1,
        **settings: Any,
    ) -> None:
        """Load the network.

        Args:
            backend: The back end: ``onnxruntime-cpu``, or one for NVIDIA GPUs, as `efftam doctor` lists them.
            bundle: Folder of the network; None: the network that is installed with the package.
            precision: ``auto``, ``fp32``, ``fp16`` or ``int8``.
            policy: ``default``, ``samurai`` or ``efficienttam``.
            threads: Number of CPU threads; 0: one per core, at most 4.
            channels: Order of the channels of [H, W, 3] images: "bgr" (as OpenCV reads them) or "rgb".
            fps: Rate of images that are given without a time, 1/s.
            max_targets: How many targets can be followed at once, 1 to 8; see `add`.
            settings: Other fields of `core.config.TrackerConfig`, such as ``lost_after=2.0``.

        Raises:
            InputError: An argument is not allowed, or the bundle is damaged.
            BackendError: The back end can't run here.
        """
        if channels not in ENCODINGS:
            raise InputError(f"channels is {shown(channels)}; choose one of {', '.join(ENCODINGS)}")
        self._encoding = ENCODINGS[channels]
        self._period_ns = _period_ns(fps)
        self._fps = fps
        names = [name for name in TrackerConfig.__dataclass_fields__ if name != "policy"]
        for name in settings.keys() - set(names):
            raise InputError(f"setting {shown(name)} is not known; choose among {', '.join(names)}")
        config = TrackerConfig(policy=policy, **settings)
        folder = "" if bundle is None else str(bundle)
        self._pipeline = open_pipeline(PipelineConfig(folder, backend, precision, max_targets, threads))
        self._targets = open_targets(self._pipeline, config)
        self._time_ns: int | None = None  # stamp of the last image, ns
        self._starts = 0
        self._newest: Result | None = None
        # Only one thread may use the network at a time. A queue between processes copies results in a thread
        # of its own, and copying a result may compute its mask by the network.
        self._busy = Lock()
        self._is_closed = False

    def track(
        self,
        source: Source,
        box: Sequence[float] | None = None,
        *,
        point: Sequence[float] | None = None,
        points: Sequence[Sequence[float]] | None = None,
        labels: Sequence[int] | None = None,
        mask: NDArray[Any] | None = None,
        fps: float | None = None,
        video_track: int | None = None,
    ) -> Iterator[Result]:
        """Select a target in the first image of a source, follow it, and yield a Result for every image.

        Args:
            source: A video file, a folder of images, a camera, or an iterable of images or of pairs (image,
                time in s). A camera is given by its number, a path such as ``/dev/video0``, or a URL such as
                ``rtsp://...``. Its newest image is used each time, and the results end when the camera has
                delivered no image for 10 s.
            box: The target, as for `start`. Or give ``point``, ``points`` with ``labels``, or ``mask``.
            fps: Rate of a folder's images, or of images without a time, 1/s; None: the tracker's ``fps``.
            video_track: Number of the track, for a file with several video tracks; None: its default track.

        Warns:
            UserWarning: Images are rotated, damaged images are left out, or the images have no true times.

        Raises:
            InputError: The source can't be read, or the target is not in its first image. Also raised by the
                results when the tracker was closed or another target was selected meanwhile.
        """
        self._require_open()
        frames = self._frames(source, fps, video_track)
        try:
            image, stamp_ns = next(frames)
        except StopIteration:
            raise InputError(f"the source ({_named(source)}) holds no image; give one or more") from None
        prompt = _prompt(image, box, point, points, labels, mask)
        first = self._begin(image, stamp_ns, prompt)
        return self._results(first, frames, self._starts)

    def _results(self, first: Result, frames: Iterator[tuple[Image, int]], start: int) -> Iterator[Result]:
        yield first
        for image, stamp_ns in frames:
            if self._starts != start or self._is_closed:
                raise InputError(
                    "the tracker was closed or another target was selected while this loop ran; end the loop"
                )
            yield self._step(image, stamp_ns)[0]

    def start(
        self,
        image: ImageLike,
        box: Sequence[float] | None = None,
        *,
        point: Sequence[float] | None = None,
        points: Sequence[Sequence[float]] | None = None,
        labels: Sequence[int] | None = None,
        mask: NDArray[Any] | None = None,
        time: float | None = None,
    ) -> Result:
        """Select a target in an image. It replaces all earlier targets.

        Give the target by one of box, point, points and mask.

        Args:
            image: uint8 [H, W, 3] in the order of the tracker's ``channels``, grey [H, W], or an Image. An
                array is copied.
            box: (x, y, width, height): left edge, top edge and size, px.
            point: (x, y): one point on the target, px.
            points: Several points [(x, y), ...], px.
            labels: For each of ``points`` 1 (on the target) or 0 (beside it); None: all are 1.
            mask: bool or uint8 [H, W], not 0 on the target.
            time: Time of the image, s; None: 1/fps after the last image.

        Raises:
            InputError: The image or the target can't be used. The target that was steered before stays, and
                all others are removed.
        """
        self._require_open()
        image = self._image(image)
        return self._begin(image, self._stamp_ns(time), _prompt(image, box, point, points, labels, mask))

    def update(self, image: ImageLike, time: float | None = None) -> Result:
        """Find the targets in the next image and return the result of the steered target.

        Of several targets, `steer` selects the steered one. For ``image`` and ``time`` see `start`.

        Raises:
            InputError: There is no target, the image can't be used, or ``time`` is not later than that of the
                last image.
        """
        return self._update(image, time)[0]

    def update_all(self, image: ImageLike, time: float | None = None) -> list[Result]:
        """Find every target in the next image and return the results in order of id.

        Arguments and errors are those of `update`. With several targets all masks are computed at once, not
        when they are first read.
        """
        return sorted(self._update(image, time), key=lambda result: result.target_id)

    def _update(self, image: ImageLike, time: float | None) -> list[Result]:
        self._require_open()
        if self.state is State.IDLE:
            raise InputError("no target yet; select one with start(image, box=(x, y, width, height))")
        image, stamp_ns = self._image(image), self._stamp_ns(time)
        self._require_later(stamp_ns)
        return self._step(image, stamp_ns)

    def add(
        self,
        image: ImageLike,
        box: Sequence[float] | None = None,
        *,
        point: Sequence[float] | None = None,
        points: Sequence[Sequence[float]] | None = None,
        labels: Sequence[int] | None = None,
        mask: NDArray[Any] | None = None,
        time: float | None = None,
        target_id: int | None = None,
    ) -> Result:
        """Select a further target. The other targets stay, and are processed in the next `update_all`.

        For the other arguments see `start`.

        Args:
            time: Time of the image, s; None: the time of the last image.
            target_id: Id of the target, 0 to 254. A target that has this id is replaced. None: the next free
                id.

        Raises:
            InputError: The image or the target can't be used, ``max_targets`` are followed already, the
                object is a target already, or ``time`` is before that of the last image.
        """
        self._require_open()
        image = self._image(image)
        stamp_ns = self._time_ns if time is None and self._time_ns is not None else self._stamp_ns(time)
        if self._time_ns is not None and stamp_ns < self._time_ns:
            raise InputError(
                f"time is {stamp_ns / NS:g} s, but the last image has the time {self._time_ns / NS:g} s; add"
                " a target on that image or a later one, or call start() for another recording"
            )
        most = self._targets.max_targets
        if len(self.ids) >= most and target_id not in self.ids:
            more = f"open the tracker with et.Tracker(max_targets={most + 1}), or " * (most < MAX_TARGETS)
            raise InputError(
                f"max_targets is {most}, and {most} target(s) are followed; {more}remove one of {self.ids}"
            )
        chosen = self._targets.id_for(NEXT_FREE) if target_id is None else target_id
        prompt = _prompt(image, box, point, points, labels, mask)
        return self._step(image, stamp_ns, {chosen: prompt}, [chosen])[0]

    def remove(self, target_id: int) -> None:
        """Forget one target. Raises InputError if no target has this id."""
        self._require_open()
        self._targets.remove(target_id)

    def steer(self, target_id: int) -> None:
        """Make this target the steered one, whose results `update`, `track` and `state` return.

        Raises InputError if no target has this id.
        """
        self._targets.steer(target_id)

    @property
    def ids(self) -> list[int]:
        """The ids of all targets, in ascending order."""
        return self._targets.ids

    @property
    def state(self) -> State:
        """State of the target, or of the steered one of several targets; IDLE without a target."""
        ids = self._targets.ids
        if not ids:
            return State.IDLE
        steered = self._targets.steered
        return self._targets.tracker(ids[0] if steered is None else steered).state

    def reset(self) -> None:
        """Forget all targets and the time."""
        self._require_open()
        self._targets.clear()
        self._time_ns = self._newest = None
        self._starts += 1

    def close(self) -> None:
        """Free the network; no other call is possible afterwards."""
        with self._busy:
            self._is_closed, self._newest = True, None
            self._pipeline.close()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, image: Image, stamp_ns: int, prompt: Prompt) -> Result:
        if self._targets.steered is None and self._targets.ids:
            self._targets.steer(self._targets.ids[0])
        chosen = self._targets.id_for(STEERED)
        for other in self._targets.ids:
            if other != chosen:
                self._targets.remove(other)
        (result,) = self._step(image, stamp_ns, {chosen: prompt}, [chosen])
        self._starts += 1
        return result

    def _step(
        self,
        image: Image,
        stamp_ns: int,
        prompts: Prompts = NO_PROMPTS,
        ids: Collection[int] | None = None,
    ) -> list[Result]:
        """Process one image and return the results, with that of the steered target first.

        The memory of this image, which only later images need, is computed when the next image is processed.
        """
        count = len(self._targets.ids if ids is None else ids)
        results: list[Result] = []

        def keep(step: Step) -> None:
            results.append(Result(self, step, count > 1))

        with self._busy:
            # No result is the newest while `step` runs. If `step` raises an exception, the network may have
            # processed the image already, and then its masks are no longer those of the last result.
            self._newest = None
            self._targets.step(Frame(image, stamp_ns), prompts, ids=ids, publish=keep)
            self._time_ns, self._newest = stamp_ns, results[-1]
        return results

    def _mask_of(self, result: Result) -> NDArray[np.uint8] | None:
        with self._busy:
            if result is not self._newest:
                raise InputError(
                    f"the mask of the result of time {result.time:.3f} s is no longer kept; read result.mask"
                    " before the next image"
                )
            return self._targets.tracker(result.target_id).mask()

    def _require_open(self) -> None:
        if self._is_closed:
            raise InputError("the tracker is closed; make a new one")

    def _require_later(self, stamp_ns: int) -> None:
        if self._time_ns is not None and stamp_ns <= self._time_ns:
            raise InputError(
                f"time is {stamp_ns / NS:g} s, but the last image has the time {self._time_ns / NS:g} s;"
                " times must grow: call start() for another recording"
            )

    def _stamp_ns(self, time: float | None, period_ns: int | None = None) -> int:
        if time is None:
            return 0 if self._time_ns is None else self._time_ns + (period_ns or self._period_ns)
        try:
            seconds = float(time)
        except (TypeError, ValueError):
            seconds = math.nan
        if not abs(seconds) <= MAX_SECONDS:
            raise InputError(f"time is {shown(time)}; give seconds as a finite number")
        return round(seconds * NS)

    def _frames(
        self, source: Source, fps: float | None, video_track: int | None
    ) -> Iterator[tuple[Image, int]]:
        """Return an iterator over the images of a source with their stamps, ns.

        Raises InputError at this call, not at the first image, if the source can't be opened.
        """
        if isinstance(source, os.PathLike):
            source = os.fspath(source)
        if isinstance(source, int | str):
            is_folder = fps is None and not is_live(source) and Path(str(source)).is_dir()
            track = DEFAULT_TRACK if video_track is None else video_track
            video = open_source(source, self._fps if is_folder else fps, AUTO, track, _warn)
            if video.note:
                _warn(f"{video.name}: {video.note}")
            return ((Image.from_array(f.bgr), f.stamp_ns) for f in video.frames())
        if not isinstance(source, Iterable) or (isinstance(source, np.ndarray) and source.ndim < 4):
            raise InputError(
                f"source is {_named(source)}; give a video file, a folder of images, a camera or an iterable "
                "of images (for single images: start and update)"
            )
        return self._given(source, self._period_ns if fps is None else _period_ns(fps))

    def _given(self, items: Iterable[Any], period_ns: int) -> Iterator[tuple[Image, int]]:
        for number, item in enumerate(items):
            image, time = item, None
            if isinstance(item, tuple):
                if len(item) != 2:
                    raise InputError(
                        f"item {number} of the source is a tuple of {len(item)} items; give an image or"
                        " (image, time in s)"
                    )
                image, time = item
            stamp_ns = 0 if number == 0 and time is None else self._stamp_ns(time, period_ns)
            if number:
                self._require_later(stamp_ns)
            yield self._image(image), stamp_ns

    def _image(self, image: Any) -> Image:
        """Return a checked Image; a numpy array is copied.

        The copy is needed because the tracker reads this image again when it processes the next one, and the
        caller may have overwritten the array by then. Raises InputError for an image that can't be used.
        """
        if isinstance(image, Image):
            check_image(image)
            return image
        if not isinstance(image, np.ndarray):
            remedy = "convert it to a numpy array, uint8 [H, W, 3]"
            if image is None:
                remedy = "OpenCV returns None for what it can't read: check the path or the camera"
            raise InputError(f"image is {_named(image)}; {remedy}")
        if image.dtype != np.uint8:
            scale = "255 * image" if image.dtype.kind in "fb" else "image * (255 / image.max())"
            raise InputError(
                f"image is {image.dtype} {image.shape}; give uint8, 0 to 255: ({scale}).astype(numpy.uint8)"
            )
        if image.ndim != 2 and (image.ndim != 3 or image.shape[2] != 3):
            first = " (channels are last: image.transpose(1, 2, 0))" if image.shape[:1] == (3,) else ""
            raise InputError(f"image has the shape {image.shape}; give [H, W, 3], or [H, W] if grey{first}")
        check_size(image.shape[1], image.shape[0])
        return Image.from_array(np.array(image, order="C"), "mono8" if image.ndim == 2 else self._encoding)


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=2)


def _prompt(
    image: Image,
    box: Sequence[float] | None,
    point: Sequence[float] | None,
    points: Sequence[Sequence[float]] | None,
    labels: Sequence[int] | None,
    mask: NDArray[Any] | None,
) -> Prompt:
    given = {"box": box, "point": point, "points": points, "mask": mask}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        what = f"{' and '.join(names)} are given" if names else "no target is given"
        raise InputError(f"{what}; give one of box=(x, y, width, height), point, points and mask")
    if labels is not None and points is None:
        raise InputError("labels are given without points; give points=[(x, y), ...] too")
    if box is not None:
        prompt = Prompt(box=Box(*_numbers("box", box, 4, "(x, y, width, height)")))
    elif mask is not None:
        mask = np.asarray(mask)
        if mask.dtype not in (np.bool_, np.uint8):
            raise InputError(
                f"mask is {mask.dtype}; give bool or uint8 with values other than 0 on the target"
            )
        prompt = Prompt(mask=mask != 0)
    else:
        pairs = [point] if point is not None else list(points or ())
        marked = [_numbers(f"point {number}" if points else "point", p, 2) for number, p in enumerate(pairs)]
        on = [1] * len(marked) if labels is None else [int(label) for label in labels]
        prompt = Prompt(points=tuple((x, y) for x, y in marked), labels=tuple(on))
    return prompt.checked(image.width, image.height, is_typed=True)


def _numbers(what: str, given: Any, count: int, shape: str = "(x, y)") -> list[float]:
    try:
        values = [float(value) for value in given]
    except (TypeError, ValueError):
        values = []
    if len(values) != count or not all(map(math.isfinite, values)):
        raise InputError(f"{what} is {shown(given)}; give {shape}, {count} finite numbers in px")
    return values


def _period_ns(fps: float) -> int:
    if not (isinstance(fps, int | float) and 1e-3 <= fps <= 1e6):
        raise InputError(f"fps is {shown(fps)}; give images per second, 0.001 to 1000000")
    return round(NS / fps)


def _named(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.shape}"
    return shown(str(value)) if isinstance(value, str | os.PathLike | int) else f"a {type(value).__name__}"


def _rounded(values: tuple[float, ...]) -> str:
    return f"({', '.join(f'{value:.1f}' for value in values)})"


def _finite(values: Any) -> Any:
    return values if all(map(math.isfinite, values)) else None
