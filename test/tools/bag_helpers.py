"""Writes bags as a camera and a person with a mouse would record them, and reads answers back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from efftam_ros.messages.bags import CAMERA_INFO_TYPE, open_typestore, reading, writing
from efftam_workshop import bag

NS = 1_000_000_000
START_NS = 1_700_000_000 * NS
STORE = open_typestore()
TYPES = STORE.types


def header(stamp_ns: int) -> Any:
    stamp = TYPES["builtin_interfaces/msg/Time"](sec=stamp_ns // NS, nanosec=stamp_ns % NS)
    return TYPES["std_msgs/msg/Header"](stamp=stamp, frame_id="camera")


def image(picture: np.ndarray, stamp_ns: int, *, padding: int = 0, **changes: Any) -> tuple[str, Any]:
    """A sensor_msgs/Image of a BGR picture whose rows are padded by so many bytes."""
    height, width = picture.shape[:2]
    rows = np.pad(picture.reshape(height, 3 * width), ((0, 0), (0, padding)))
    fields = {
        "header": header(stamp_ns),
        "height": height,
        "width": width,
        "encoding": "bgr8",
        "is_bigendian": 0,
        "step": 3 * width + padding,
        "data": rows.reshape(-1),
    }
    return "sensor_msgs/msg/Image", TYPES["sensor_msgs/msg/Image"](**fields | changes)


def compressed(picture: np.ndarray, stamp_ns: int) -> tuple[str, Any]:
    data = cv2.imencode(".png", picture)[1].reshape(-1)
    kind = "sensor_msgs/msg/CompressedImage"
    return kind, TYPES[kind](header=header(stamp_ns), format="png", data=data)


def selection(
    stamp_ns: int, box: tuple[float, ...] = (0, 0, 0, 0), kind: int = 0, units: int = 0, target_id: int = 0
) -> tuple[str, Any]:
    """A TargetSelection of a box (or of kind 3: clear)."""
    nothing = image(np.zeros((0, 0, 3), np.uint8), 0, encoding="", step=0)[1]
    name = "efftam_ros/msg/TargetSelection"
    sides = dict(zip(("x", "y", "width", "height"), map(float, box), strict=True))
    marks = {"points": [], "labels": np.zeros(0, np.uint8), "mask": nothing}
    of = {"target_id": target_id, "kind": kind, "units": units}
    message = TYPES[name](header=header(stamp_ns), **of, **sides, **marks)
    return name, message


def camera_info(width: int, height: int, focal_px: float) -> tuple[str, Any]:
    return CAMERA_INFO_TYPE, bag.camera_info(STORE, header(START_NS), width, height, focal_px)


def write_bag(
    path: Path, messages: Iterable[tuple[str, int, tuple[str, Any]]], storage: str = "mcap"
) -> Path:
    """A bag of (topic, time recorded in ns, (type, message)), in the order of the times."""
    with writing(path, storage) as writer:
        connections: dict[str, Any] = {}
        for topic, recorded_ns, (kind, message) in sorted(messages, key=lambda m: m[1]):
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=STORE)
            writer.write(connections[topic], recorded_ns, STORE.serialize_cdr(message, kind))
    return path


def read_raw(path: Path) -> list[tuple[str, int, bytes]]:
    """Topic, time recorded and serialized bytes of every message."""
    with reading(path) as opened:
        return [(c.topic, recorded, bytes(raw)) for c, recorded, raw in opened.messages(opened.connections)]


def read_messages(path: Path, topic: str) -> list[Any]:
    with reading(path) as opened:
        connections = [c for c in opened.connections if c.topic == topic]
        assert connections, f"no topic {topic}"  # the library would take none for all
        return [STORE.deserialize_cdr(raw, c.msgtype) for c, _, raw in opened.messages(connections)]


def stamps(messages: list[Any]) -> list[int]:
    return [m.header.stamp.sec * NS + m.header.stamp.nanosec for m in messages]
