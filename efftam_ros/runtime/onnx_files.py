"""Finds the other files that an ONNX graph reads, from its bytes, without the onnx package.

The parser only follows lengths (protocol buffers' wire format, onnx.proto3's field numbers), so that a graph
of hundreds of megabytes takes milliseconds."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from efftam_ros.core.errors import InputError

MOST_NESTED = 64
"""Messages within messages; a graph within a node of a graph takes three."""

# Kind of message -> field number -> kind of the message there.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external data"},
}
_OPERATOR = 4  # of a node
_KEY, _VALUE = 1, 2  # of an entry of external data
# A node of this operator names a file that an execution provider loads as code.
_CONTEXT = b"EPContext"


def external_files(path: Path) -> frozenset[str]:
    """The locations of all weights outside the graph's own file, as it names them.

    Raises InputError: no ONNX file, or one whose nodes load compiled code.
    """
    if not path.stat().st_size:
        raise InputError(f"{path} is empty; export or fetch it again")
    with path.open("rb") as file:
        # Not closed here: views into it live on in what is raised below.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return frozenset(_locations(memoryview(data), "model"))
    except InputError as refusal:
        raise InputError(f"{path}: {refusal}") from None
    except (IndexError, ValueError):
        raise InputError(f"{path} is not an ONNX graph; export or fetch it again") from None


def _locations(data: memoryview, kind: str, depth: int = 0) -> Iterator[str]:
    if depth > MOST_NESTED:
        raise ValueError("nested too deep")
    if kind == "external data":
        entry = {number: bytes(content) for number, content in _contents(data)}
        if entry.get(_KEY) == b"location":
            yield entry.get(_VALUE, b"").decode()
        return
    inner = _FIELDS[kind]
    for number, content in _contents(data):
        if number in inner:
            yield from _locations(content, inner[number], depth + 1)
        elif kind == "node" and number == _OPERATOR and content == _CONTEXT:
            raise InputError("a graph with a node EPContext loads compiled code; use one without")


def _contents(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Field number and content of every field that has a length. Raises ValueError and IndexError where the
    bytes are no message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("a length beyond the end")
            yield number, data[at : at + length]
            at += length
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if not number or at > len(data):
            raise ValueError("no field")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number without end")
