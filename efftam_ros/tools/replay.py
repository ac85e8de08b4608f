"""Track in a recorded bag: process every image in order, and write the results to a new bag or a JSON file.

Select the target on the first image with --box or --point. Without these options the TargetSelection messages
in the bag select it. Each selection applies to the image with the same stamp; with the stamp 0 it applies to
the newest image at that time. CLEAR applies to all later images. Each result has the header of its image.
Replaying a bag twice gives byte-identical messages.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import MAX_TARGETS
from efftam_ros.core.errors import InputError
from efftam_ros.core.targets import NEXT_FREE, STEERED, TargetSet
from efftam_ros.core.types import Frame, Image, Prompt, Track, TrackState
from efftam_ros.images.levels import Levels, few_levels
from efftam_ros.images.message import ImageReader, StampGuard, header_of, image_fields, stamp_ns
from efftam_ros.images.pixels import to_bgr
from efftam_ros.messages import bags
from efftam_ros.messages.bearing import (
    Bearing,
    CameraModel,
    bearing_of,
    camera_model,
    is_rectified_topic,
    rectified_note,
)
from efftam_ros.messages.fields import (
    About,
    Kind,
    bbox_fields,
    check_selection,
    selection_prompt,
    velocity_fields,
)
from efftam_ros.package_files import PACKAGE
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_ros.tools.common import options
from efftam_ros.tools.common.following import Answers, follow
from efftam_ros.tools.common.outputs import Output, check_outputs
from efftam_ros.tools.common.prompts import add_prompt_arguments, by_target, read_prompts
from efftam_ros.tools.common.recordings import (
    ViewerRecording,
    add_rerun_argument,
    open_recording,
    rerun_output,
)
from efftam_ros.tools.common.terminal import progress_bar
from efftam_ros.tools.common.track_json import TrackFacts, frame_record, write_track_json

if TYPE_CHECKING:
    from rosbags.interfaces import Connection
    from rosbags.rosbag2 import Reader, Writer
    from rosbags.typesys.store import Typestore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bag", type=Path, metavar="BAG", help="bag folder, .mcap or .db3")
    add_prompt_arguments(parser, mask=False)
    files = parser.add_argument_group("input and output")
    files.add_argument("--out", type=Path, metavar="BAG", help="new bag for the results")
    files.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="boxes of every image, as 'efftam track' writes them; - for stdout",
    )
    files.add_argument("--topic", help="topic of images or video (default: /image, or the only one)")
    files.add_argument(
        "--storage", choices=bags.STORAGES, help=f"storage of the new bag (default {bags.STORAGES[0]})"
    )
    files.add_argument("--with-masks", action="store_true", help="write the masks too (large)")
    options.add_range_argument(files)
    files.add_argument(
        "--rectified",
        action="store_true",
        help="the images are rectified: use P of camera_info, not K and D"
        " (default: only if the topic's name shows it, such as image_rect)",
    )
    files.add_argument("--namespace", default="", metavar="NS", help="namespace of the result topics")
    add_rerun_argument(files)
    options.add_quiet_argument(files)
    options.add_network_arguments(parser)
    options.add_tracker_arguments(parser)


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    config = options.tracker_config(args.settings, view=args.view, policy=args.policy)
    store = bags.open_typestore()
    with ExitStack() as stack:
        reader = stack.enter_context(bags.reading(args.bag, _warn))
        outputs = [Output("--out", args.out, "new folder"), Output("--json", args.json)]
        check_outputs([*outputs, rerun_output(args.rerun)], [args.bag])
        images = bags.choose_topic(reader, args.topic)
        drawn = bool(args.box or args.point)
        selections = [] if drawn else read_selections(reader, store)
        if not drawn and not selections:
            raise InputError(
                f"no target is given, and {args.bag} holds no {bags.SELECTION_TYPE}; give --box X,Y,W,H"
            )
        is_one = all(selection.message.target_id == STEERED for selection in selections)
        # Each target needs memory. Recorded selections that name targets by id, or the next free id, may need
        # up to MAX_TARGETS.
        wanted = len(by_target(args.box, args.point)) if drawn else 1 if is_one else MAX_TARGETS
        pipeline = open_pipeline(options.pipeline_config(args, min(wanted, MAX_TARGETS)))
        stack.callback(pipeline.close)
        results: ResultWriter | None = None
        if args.out is not None:
            writer = stack.enter_context(bags.writing(args.out, args.storage or bags.STORAGES[0]))
            results = ResultWriter(writer, store, args.namespace, args.with_masks)
        replay = Replay(
            open_targets(pipeline, config),
            results,
            selections,
            partial(read_prompts, args.box, args.point, None) if drawn else None,
            stack.enter_context(open_recording(args.rerun, args.bag.name)),
            keeps_frames=args.json is not None,
        )
        bar = stack.enter_context(
            progress_bar(bags.count_of(reader, images), args.bag.name, unit="image", quiet=args.quiet)
        )
        is_finished = False
        try:
            for message in read_images(reader, store, images, args.rectified, Levels(args.range)):
                replay.process(message)
                bar.update()
            replay.finish()
            is_finished = True
        finally:
            # Write the boxes even after an error or Ctrl-C, like `efftam track`.
            if replay.frames:
                is_complete = is_finished and not replay.unused
                facts = TrackFacts(None, *replay.size, pipeline.spec.name, args.backend, is_complete)
                write_track_json(args.json, args.bag, facts, replay.frames)
    print(replay.summary(), file=sys.stderr if str(args.json) == "-" else sys.stdout)
    if not replay.tracked:
        if not replay.unused:
            raise InputError(f"topic {images.topic} of {args.bag} holds no images; name another with --topic")
        raise InputError(f"no image of {images.topic} could be used, for the reasons above")
    return 0


def _check_options(args: argparse.Namespace) -> None:
    """Raise InputError if no output is given, or if --out is missing for an option of the new bag."""
    if args.out is None and args.json is None and args.rerun is None:
        raise InputError(
            "no output was given; add --out BAG for a bag of results, --json FILE for the boxes, or"
            " --rerun FILE.rrd"
        )
    of_bag = {"--storage": args.storage, "--with-masks": args.with_masks, "--namespace": args.namespace}
    for option in (option for option, value in of_bag.items() if value and args.out is None):
        raise InputError(f"{option} is for the new bag; add --out BAG, or leave out {option}")


@dataclass(frozen=True)
class RecordedSelection:
    """A TargetSelection message from the bag. ``recorded_ns``: when it was recorded, ns."""

    recorded_ns: int
    message: Any

    @property
    def stamp_ns(self) -> int:
        return stamp_ns(self.message.header.stamp)

    def __str__(self) -> str:
        stamp = self.stamp_ns
        return f"selection for {'the newest image' if stamp == 0 else f'the image of {stamp * 1e-9:.3f} s'}"


@dataclass(frozen=True)
class RecordedImage:
    """An image from the bag, not decoded yet.

    Attributes:
        header: The image's std_msgs/Header.
        read: Decodes the image. Must be called once for each image, in recorded order. Raises InputError.
        recorded_ns: When the image was recorded, ns.
        next_ns: When the next image was recorded, ns; None for the last image.
        camera: Camera model from the latest camera_info before the image; None if there is none.
    """

    header: Any
    read: Callable[[], Image]
    recorded_ns: int
    next_ns: int | None
    camera: CameraModel | None


def read_selections(reader: Reader, store: Typestore) -> list[RecordedSelection]:
    """Read all TargetSelection messages of the bag, in recorded order."""
    return [RecordedSelection(*found) for found in bags.messages_of_type(reader, store, bags.SELECTION_TYPE)]


def read_images(
    reader: Reader, store: Typestore, images: Connection, rectified: bool, levels: Levels
) -> Iterator[RecordedImage]:
    """Yield the images of a topic in recorded order, each with the camera model of the latest camera_info.

    ``images``: the topic's connection; ``rectified``: whether the images are rectified, whatever the topic's
    name; ``levels``: reduces 16-bit pixels.
    """
    info = bags.camera_info_topic(reader, images.topic)
    camera: CameraModel | None = None
    refused = ""
    held: tuple[int, bytes, CameraModel | None] | None = None
    noted: set[str] = set()
    transport = {bags.IMAGE_TYPES[0]: "raw", bags.IMAGE_TYPES[1]: "compressed"}.get(images.msgtype, "video")
    reader_of_images = ImageReader(transport, store.types["std_msgs/msg/Header"], levels)

    def made(held: tuple[int, bytes, CameraModel | None], next_ns: int | None) -> RecordedImage:
        recorded, raw, model = held
        message = bags.deserialized(store, raw, images)
        header = header_of(message, store.types["std_msgs/msg/Header"])

        def read() -> Image:
            got = reader_of_images.read(message, recorded)
            if got.note and got.note not in noted:
                noted.add(got.note)
                _warn(f"{images.topic}: {got.note}")
            return got.image()

        return RecordedImage(header, read, recorded, next_ns, model)

    for connection, recorded, raw in bags.messages(reader, [images] if info is None else [images, info]):
        if info is not None and connection.topic == info.topic:
            try:
                message = bags.deserialized(store, raw, info)
                camera = camera_model(message, rectified or is_rectified_topic(images.topic))
                if not rectified and (note := rectified_note(message, images.topic)) and note not in noted:
                    noted.add(note)
                    _warn(note)
            except InputError as error:
                # Usually each camera_info has the same fault. It is reported once.
                if str(error) != refused:
                    _warn(f"{info.topic}: {error}")
                camera, refused = None, str(error)
            continue
        if held is not None:
            yield made(held, recorded)
        held = recorded, raw, camera
    if held is not None:
        yield made(held, None)


class ResultWriter:
    """Writes the result topics of a new bag: bbox and velocity, and mask if ``with_masks`` is True.

    ``namespace``: prefix of the topics' names.
    """

    def __init__(self, writer: Writer, store: Typestore, namespace: str, with_masks: bool) -> None:
        self._writer, self._store, self.with_masks = writer, store, with_masks
        prefix = "/" + namespace.strip("/") + "/" if namespace.strip("/") else "/"
        kinds = {"bbox": f"{PACKAGE}/msg/BoundingBox", "velocity": f"{PACKAGE}/msg/TargetVelocity"}
        kinds |= {"mask": bags.IMAGE_TYPES[0]} if with_masks else {}
        self._topics = {
            name: writer.add_connection(prefix + name, kind, typestore=store) for name, kind in kinds.items()
        }

    def write(self, name: str, recorded_ns: int, fields: dict[str, Any]) -> None:
        """Write a message.

        ``name``: the topic's name without namespace; ``recorded_ns``: recording time, ns; ``fields``: all
        fields of the message, by name.
        """
        connection = self._topics[name]
        message = self._store.types[connection.msgtype](**fields)
        self._writer.write(connection, recorded_ns, self._store.serialize_cdr(message, connection.msgtype))


@dataclass(frozen=True)
class Selected:
    """The current selection of a target.

    ``number``: counts the selections from 1, 0 for none; ``recorded_ns``: when the selection was recorded,
    ns; -1 for a selection on the command line.
    """

    number: int = 0
    recorded_ns: int = -1


class Replay:
    """Runs the tracker over recorded images, applies the selections, and writes the results."""

    def __init__(
        self,
        targets: TargetSet,
        results: ResultWriter | None,
        selections: list[RecordedSelection],
        first: Callable[[int, int], dict[int, Prompt]] | None,
        recording: ViewerRecording | None,
        *,
        keeps_frames: bool,
    ) -> None:
        """Prepare a run.

        Args:
            targets: The targets, none of them selected yet.
            results: Writes the result topics, or None.
            selections: The recorded selections, in recorded order.
            first: Returns the prompts for the first usable image by target id, from the image's width and
                height, px. It may raise InputError. None if only the recorded selections are applied.
            recording: Recording for the Rerun viewer, or None.
            keeps_frames: Whether `frames` is filled.
        """
        self._targets, self._results, self._first, self._recording = targets, results, first, recording
        self._waiting = list(selections)
        self._stamps = StampGuard()
        self._selected: dict[int, Selected] = defaultdict(Selected)
        self.tracked = self.unused = self._applied = self._refused = 0
        self._reported: set[str] = set()
        # Refused images by kind of reason (the reason without numbers): the first reason, and the number of
        # images.
        self._skipped: dict[str, tuple[str, int]] = {}
        self._states: Counter[str] = Counter()
        self._keeps_frames = keeps_frames
        self.frames: list[dict[str, Any]] = []
        """The record of each processed image, for the JSON file."""
        self.size = 0, 0
        """Width and height of the last processed image, px."""
        self._read = 0  # number of images of the bag so far, used or not

    def process(self, recorded: RecordedImage) -> None:
        """Process the next image: apply the selections for it, track the targets, and write the results."""
        header = recorded.header
        stamp = stamp_ns(header.stamp)
        index, self._read = self._read, self._read + 1
        self._clear_before(recorded.recorded_ns)
        selections = self._selections_for(stamp, recorded)
        try:
            # Every image is decoded, even if it is not used, because the next images of a video depend on it.
            image = recorded.read()
            self._stamps.check(stamp, recorded.recorded_ns)
        except InputError as error:
            for selection in selections:
                self._refuse(selection, f"the selected image can't be used: {error}")
            self._skip(stamp, str(error))
            return
        before = dict(self._selected)
        answers = self._follow(Frame(image, stamp), selections)
        if self._selected != before and (few := few_levels(image)):
            self._warn_once(few)
        refused = [track.reason for track, _ in answers.values() if not track.processed]
        if refused:
            self._skip(stamp, refused[0])
            return
        self.tracked += 1
        for target_id, (track, mask) in answers.items():
            self._states[track.state.name] += 1
            if self._results is not None:
                self._write(self._results, target_id, track, mask, header, recorded)
        self.size = image.width, image.height
        if self._keeps_frames:
            self.frames.append(frame_record(index, {one: track for one, (track, _) in answers.items()}))
        if self._recording is not None:
            self._recording.write(to_bgr(image), answers)

    def _follow(self, frame: Frame, selections: list[RecordedSelection]) -> Answers:
        """Process a frame with the selections for it. Return the track and mask of each target, ordered by
        id."""
        size, found = (frame.image.width, frame.image.height), Answers()
        masked = (self._results is not None and self._results.with_masks) or self._recording is not None
        if self._first is not None:  # prompts from the command line: if one is invalid, the command ends
            prompts, self._first = self._first(*size), None
            found, _ = follow(self._targets, frame, prompts, masked)
            self._selected.update({one: Selected(number) for number, one in enumerate(found, start=1)})
            self._applied += len(found)
        for selection in selections:
            try:
                chosen = self._targets.id_for(selection.message.target_id)
                prompts = {chosen: selection_prompt(selection.message, *size)}
                found |= follow(self._targets, frame, prompts, masked, ids=())[0]
            except InputError as error:
                self._refuse(selection, str(error))
                continue
            self._applied += 1
            number = 1 + max((one.number for one in self._selected.values()), default=0)
            self._selected[chosen] = Selected(number, selection.recorded_ns)
        others = [one for one in self._targets.ids if one not in found]
        if others or not found:
            found |= follow(self._targets, frame, None, masked, ids=others)[0]
        return dict(sorted(found.items()))

    def _skip(self, stamp: int, reason: str) -> None:
        """Count an image that can't be used, and report the first image of each kind of reason."""
        self.unused += 1
        kind = re.sub(r"\d+", "", reason)  # reasons that differ only in numbers are one kind
        first, count = self._skipped.get(kind, (reason, 0))
        self._skipped[kind] = first, count + 1
        if not count:
            _warn(f"image of {stamp * 1e-9:.3f} s not used: {reason}")

    def _clear_before(self, recorded_ns: int) -> None:
        """Apply the CLEAR messages that were recorded before ``recorded_ns``, ns.

        A CLEAR that is older than the current selection of its target has no effect.
        """
        for selection in [s for s in self._waiting if s.recorded_ns < recorded_ns and _is_clear(s)]:
            self._waiting.remove(selection)
            ids, asked = self._targets.ids, selection.message.target_id
            for target_id in ids if asked == NEXT_FREE else [self._named(asked)]:
                if target_id in ids and selection.recorded_ns > self._selected[target_id].recorded_ns:
                    self._targets.remove(target_id)
            self._applied += 1

    def _named(self, asked: int) -> int:
        """Return the target id that a selection or CLEAR applies to.

        ``asked``: the message's target id. `STEERED` means the steered target, or the only target.
        """
        ids, steered = self._targets.ids, self._targets.steered
        if asked != STEERED or (steered is None and len(ids) != 1):
            return asked
        return ids[0] if steered is None else steered

    def _selections_for(self, stamp: int, image: RecordedImage) -> list[RecordedSelection]:
        """Return the newest selection of each target for this image, and report older ones as refused.

        ``stamp``: the image's stamp, ns.
        """
        named = [s for s in self._waiting if not _is_clear(s) and _names(s, stamp, image)]
        fresh: dict[Any, RecordedSelection] = {}
        for number, selection in enumerate(named):
            self._waiting.remove(selection)
            target_id = self._named(selection.message.target_id)
            if selection.recorded_ns > self._selected[target_id].recorded_ns:
                # Each selection with the id `NEXT_FREE` adds another target, so it replaces no other
                # selection.
                fresh[(target_id, number) if target_id == NEXT_FREE else target_id] = selection
        for selection in named:
            if not any(selection is one for one in fresh.values()):
                self._refuse(selection, "replaced by a newer selection")
        return list(fresh.values())

    def _write(
        self,
        results: ResultWriter,
        target_id: int,
        track: Track,
        mask: NDArray[np.uint8] | None,
        header: Any,
        recorded: RecordedImage,
    ) -> None:
        when = recorded.recorded_ns
        selection = 0 if track.state is TrackState.IDLE else self._selected[target_id].number
        is_steered = self._targets.steered in (None, target_id)
        about = About(header, selection, target_id, is_steered)
        results.write("bbox", when, bbox_fields(track, about))
        bearing = self._bearing(track, recorded.camera)
        fields = velocity_fields(track, about, bearing=bearing, predicted_bearing=bearing)
        results.write("velocity", when, fields)
        if results.with_masks and is_steered:
            # Like the node, write a mask for every image. The mask is empty if the target is not visible.
            width, height = track.image_size
            pixels = np.zeros((height, width), np.uint8) if mask is None else np.ascontiguousarray(mask)
            results.write("mask", when, image_fields(pixels, "mono8", header) | {"data": pixels.reshape(-1)})

    def _bearing(self, track: Track, camera: CameraModel | None) -> Bearing | None:
        try:
            return bearing_of(track.motion, track.image_size, camera)
        except InputError as refusal:
            self._warn_once(str(refusal))
            return None

    def _warn_once(self, line: str) -> None:
        if line not in self._reported:
            self._reported.add(line)
            _warn(line)

    def _refuse(self, selection: RecordedSelection, reason: str) -> None:
        self._refused += 1
        _warn(f"{selection} refused: {reason}")

    def finish(self) -> None:
        """Report how many images were refused for each reason, and the selections that matched no image."""
        for reason, count in self._skipped.values():
            if count > 1:
                _warn(f"{count - 1} more images not used, for the same reason as the first one: {reason}")
        for selection in self._waiting:
            if _is_clear(selection):
                self._applied += 1  # a CLEAR that was recorded after the last image
            else:
                self._refuse(selection, "the bag has no image to which it applies; check its stamp")

    def summary(self) -> str:
        states = ", ".join(f"{name} {count}" for name, count in self._states.items()) or "none"
        unused = f"; {self.unused} images not used" if self.unused else ""
        return (
            f"{self.tracked} images processed; states: {states};"
            f" selections: {self._applied} applied, {self._refused} refused{unused}"
        )


def _is_clear(selection: RecordedSelection) -> bool:
    try:
        return check_selection(selection.message) is Kind.CLEAR
    except InputError:
        return False  # an invalid selection is reported when its image is processed


def _names(selection: RecordedSelection, stamp: int, image: RecordedImage) -> bool:
    """Return whether a selection applies to an image. ``stamp``: the image's stamp, ns."""
    if selection.stamp_ns:
        return selection.stamp_ns == stamp
    newest_then = image.next_ns is None or selection.recorded_ns < image.next_ns
    return image.recorded_ns <= selection.recorded_ns and newest_then


def _warn(line: str) -> None:
    print(f"efftam replay: {line}", file=sys.stderr)
