"""A bag with the tracker's answers as a recording: of a live flight, or what `efftam replay` wrote."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.interop import bags
from efftam_ros.interop.package_files import PACKAGE
from efftam_ros.interop.pictures import compressed_bgr, raw_bgr
from efftam_ros.operator.feed import BoxReport, MotionReport, RecordedRun
from efftam_ros.operator.recorded.messages import box_report, image_stamp, motion_report

if TYPE_CHECKING:
    from rosbags.interfaces import Connection
    from rosbags.rosbag2 import Reader

Report = TypeVar("Report", BoxReport, MotionReport)

BOX_TYPE, MOTION_TYPE = f"{PACKAGE}/msg/BoundingBox", f"{PACKAGE}/msg/TargetVelocity"
NS = 1_000_000_000


def is_bag(path: Path) -> bool:
    """Whether this is to be read as a bag: a folder with metadata.yaml, an .mcap or a .db3 file."""
    return path.suffix in (".mcap", ".db3") or (path / "metadata.yaml").is_file()


def has_images(path: Path) -> bool:
    """Whether a bag holds an image topic. Raises InputError where it can't be read."""
    with bags.reading(path) as reader:
        return any(connection.msgtype in bags.IMAGE_TYPES for connection in reader.connections)


class BagPictures:
    """The images of one topic in order of their stamps (the last of a stamp counts). Used by one thread after
    it was made, which may be another one."""

    def __init__(self, path: Path, topic: str | None = None) -> None:
        self._path, self._topic = path, topic
        self._store = bags.open_typestore()
        with bags.reading(path) as reader:
            self._topic = self._images(reader).topic
            found = {_stamp(raw): at for _, at, raw in bags.messages(reader, [self._images(reader)])}
        if not found:
            raise InputError(f"topic {self._topic} of {path} holds no images; record some")
        self.stamps_ns: Sequence[int] = sorted(found)
        self._recorded_ns = [found[stamp] for stamp in self.stamps_ns]
        self._opened: AbstractContextManager[Reader] | None = None
        self._reader: Reader | None = None

    def bgr(self, index: int) -> NDArray[np.uint8]:
        # Opened by the reading thread: an SQLite connection may be used only by the thread that made it.
        if self._reader is None:
            self._opened = bags.reading(self._path)
            self._reader = self._opened.__enter__()
        images, at = self._images(self._reader), self._recorded_ns[index]
        for _, _, raw in self._reader.messages([images], start=at, stop=at + 1):
            if _stamp(raw) == self.stamps_ns[index]:
                message = bags.deserialized(self._store, raw, images)
                read = compressed_bgr if images.msgtype == bags.IMAGE_TYPES[1] else raw_bgr
                return read(message)
        raise InputError(f"{self._path}: image {index} of {self._topic} can't be read again; was it changed?")

    def _images(self, reader: Reader) -> Connection:
        return bags.choose_topic(reader, self._topic)


def bag_run(path: Path, stamps_ns: Sequence[int], name: str) -> RecordedRun:
    """What the tracker answered to the images of these stamps.

    Raises InputError: no answers, answers on several topics, none to these images, unreadable.
    """
    store = bags.open_typestore()
    with bags.reading(path) as reader:

        def read(kind: str) -> Iterator[Any]:
            topics = {c.topic for c in reader.connections if c.msgtype == kind}
            if len(topics) > 1:
                raise InputError(
                    f"{path} holds the answers of several trackers ({', '.join(sorted(topics))}); record one"
                    " alone"
                )
            for _, message in bags.messages_of_type(reader, store, kind):
                yield message

        boxes = _answers(path, read(BOX_TYPE), box_report)
        motions = _answers(path, read(MOTION_TYPE), motion_report)
    if not boxes:
        raise InputError(f"{path} holds no {BOX_TYPE}; record bbox and velocity, or make them: efftam replay")
    if not boxes.keys() & set(stamps_ns):
        first = next(iter(boxes)) / NS
        raise InputError(
            f"no answer in {path} is of these images (the first is of {first:.3f} s, the images begin at"
            f" {stamps_ns[0] / NS:.3f} s); give the bag of the images that were tracked with --video"
        )
    return RecordedRun(name, [boxes.get(s) for s in stamps_ns], [motions.get(s) for s in stamps_ns])


def _answers(path: Path, messages: Iterable[Any], report: Callable[[Any], Report]) -> dict[int, Report]:
    """By stamp: the answer to the newest selection, and of those the first, for later ones take it back."""
    chosen: dict[int, Any] = {}
    try:
        for message in messages:
            known = chosen.get(image_stamp(message))
            if known is None or message.selection > known.selection:
                chosen[image_stamp(message)] = message
        return {stamp: report(message) for stamp, message in chosen.items()}
    except ValueError as error:
        raise InputError(f"{path}: an answer can't be used ({error}); record it again") from None


def _stamp(raw: bytes) -> int:
    """The stamp of a serialised message whose first field is a header; without reading its pixels."""
    order = "<" if raw[1] & 1 else ">"
    sec, nanosec = struct.unpack_from(f"{order}iI", raw, 4)
    return int(sec) * NS + int(nanosec)
