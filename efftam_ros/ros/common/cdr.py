"""Reads and writes messages in their serialised form, only the fields that are needed.

rclpy makes an object of each part of a message and sets every field by name; in a node that works 50 times a
second on small messages, that takes longer than the work. The serialised form is plain CDR: four bytes that
name the byte order, then the fields in order, each aligned to its size, a text as its length and its bytes
(OMG Common Data Representation, as the RTPS standard 9.4.2 uses it).
"""

from __future__ import annotations

import struct
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import itemgetter
from typing import Any

from rosidl_parser.definition import Array, BasicType, NamespacedType, UnboundedString

from efftam_ros.core.errors import InputError

CODES = {
    "boolean": "?",
    "octet": "B",
    "uint8": "B",
    "int8": "b",
    "uint16": "H",
    "int16": "h",
    "uint32": "I",
    "int32": "i",
    "uint64": "Q",
    "int64": "q",
    "float": "f",
    "double": "d",
}
TEXT = "s"
ORDERS = {b"\x00\x00": ">", b"\x00\x01": "<"}
LITTLE = b"\x00\x01\x00\x00"
HEAD = len(LITTLE)
# Texts differ in length from message to message; so many structures are kept.
MOST_STRUCTURES = 256


@dataclass(frozen=True)
class _Leaf:
    """A field of a basic type: where it is in the message, its code of the module struct, how many there
    are."""

    path: tuple[str, ...]
    code: str
    count: int = 1

    @property
    def name(self) -> str:
        return ".".join(self.path)


def _leaves(kind: Any, path: tuple[str, ...] = ()) -> list[_Leaf]:
    found: list[_Leaf] = []
    for name, slot in zip(kind.get_fields_and_field_types(), kind.SLOT_TYPES, strict=True):
        count, value = (slot.size, slot.value_type) if isinstance(slot, Array) else (1, slot)
        here = (*path, name)
        if isinstance(value, NamespacedType) and count == 1:
            module = import_module(".".join(value.namespaces))
            found += _leaves(getattr(module, value.name), here)
        elif isinstance(value, BasicType):
            found.append(_Leaf(here, CODES[value.typename], count))
        elif isinstance(value, UnboundedString) and count == 1:
            found.append(_Leaf(here, TEXT))
        else:
            raise TypeError(f"{kind.__name__}.{'.'.join(here)} is neither a number, numbers, nor a text")
    return found


class _Form:
    """How messages of a kind lie in memory. ``wanted``: names of the fields that are taken; others are passed
    over. ``with_lengths``: those of texts are taken too, each before its text. Lengths include the zero byte
    at a text's end."""

    def __init__(self, leaves: Sequence[_Leaf], wanted: frozenset[str], with_lengths: bool = False) -> None:
        self._leaves, self._wanted, self._with_lengths = leaves, wanted, with_lengths
        self._structures: dict[tuple[str, tuple[int, ...]], struct.Struct] = {}
        self._places: dict[tuple[int, ...], int] = {}

    def structure(self, order: str, lengths: tuple[int, ...]) -> struct.Struct:
        """Of the whole message."""
        found = self._structures.get((order, lengths))
        if found is None:
            if len(self._structures) >= MOST_STRUCTURES:
                self._structures.clear()
            found = struct.Struct(order + self._format(lengths)[0])
            self._structures[order, lengths] = found
        return found

    def place(self, lengths: tuple[int, ...]) -> int:
        """Where the length of the text after those of ``lengths`` is."""
        found = self._places.get(lengths)
        if found is None:
            if len(self._places) >= MOST_STRUCTURES:
                self._places.clear()
            found = self._places[lengths] = self._format(lengths)[1]
        return found

    def _format(self, lengths: tuple[int, ...]) -> tuple[str, int]:
        """The format, and how many bytes it has, up to the first text whose length is not given."""
        given = iter(lengths)
        parts, at = [f"{HEAD}x"], 0

        def add(code: str, size: int, count: int, is_wanted: bool) -> None:
            nonlocal at
            padding = -at % size
            parts.append(f"{padding}x{count}{code}" if is_wanted else f"{padding + size * count}x")
            at += padding + size * count

        for leaf in self._leaves:
            is_wanted = leaf.name in self._wanted
            if leaf.code == TEXT:
                add("I", 4, 1, self._with_lengths)
                length = next(given, None)
                if length is None:
                    return "".join(parts), HEAD + at - 4
                parts.append(f"{length}{TEXT}" if is_wanted else f"{length}x")
                at += length
            else:
                add(leaf.code, struct.calcsize("=" + leaf.code), leaf.count, is_wanted)
        return "".join(parts), HEAD + at


class Reader:
    """Makes records of one kind of message: named tuples with the fields ``wanted`` ("header.stamp" takes
    both its parts), nested as in the message. Raises TypeError for a kind that it can't read, KeyError for a
    field that does not exist."""

    def __init__(self, kind: Any, *wanted: str) -> None:
        leaves = _leaves(kind)
        self._name = kind.__name__
        for name in wanted:
            if not any(_is_within(leaf.name, name) for leaf in leaves):
                raise KeyError(f"{self._name} has no field {name}")
        taken = [leaf for leaf in leaves if any(_is_within(leaf.name, name) for name in wanted)]
        self._form = _Form(leaves, frozenset(leaf.name for leaf in taken))
        self._texts = sum(leaf.code == TEXT for leaf in leaves)
        self._lengths = {order: struct.Struct(order + "I") for order in ORDERS.values()}
        ends = [
            sum(1 if leaf.code == TEXT else leaf.count for leaf in taken[: i + 1]) for i in range(len(taken))
        ]
        self._make = _maker(
            self._name, [(leaf.path, leaf, end) for leaf, end in zip(taken, ends, strict=True)]
        )

    def read(self, data: bytes) -> Any:
        """The record in a serialised message. Raises InputError where there is none."""
        order = ORDERS.get(data[:2])
        if order is None:
            raise InputError(
                f"a {self._name} in encoding {data[:2].hex() or 'none'}; only plain CDR (0000, 0001) is read:"
                " choose another RMW_IMPLEMENTATION"
            )
        try:
            lengths: tuple[int, ...] = ()
            for _ in range(self._texts):
                (length,) = self._lengths[order].unpack_from(data, self._form.place(lengths))
                if length > len(data):
                    raise InputError(f"a {self._name} of {len(data)} bytes names a text of {length}")
                lengths += (length,)
            return self._make(self._form.structure(order, lengths).unpack_from(data))
        except struct.error:
            raise InputError(f"a {self._name} of {len(data)} bytes is cut off") from None


class Writer:
    """Serialises one kind of message. Raises TypeError for a kind that it can't write."""

    def __init__(self, kind: Any) -> None:
        leaves = _leaves(kind)
        self._form = _Form(leaves, frozenset(leaf.name for leaf in leaves), with_lengths=True)
        self._texts = [
            sum(leaf.count for leaf in leaves[:i]) for i, leaf in enumerate(leaves) if leaf.code == TEXT
        ]

    def write(self, *values: Any) -> bytes:
        """``values``: of all basic fields, in order, each of an array on its own; texts as str."""
        filled = list(values)
        lengths: tuple[int, ...] = ()
        for added, place in enumerate(self._texts):
            text = filled[place + added].encode() + b"\0"
            filled[place + added : place + added + 1] = len(text), text
            lengths += (len(text),)
        return LITTLE + self._form.structure("<", lengths).pack(*filled)[HEAD:]


def _is_within(name: str, field: str) -> bool:
    return name == field or name.startswith(field + ".")


def _maker(name: str, fields: Sequence[tuple[tuple[str, ...], _Leaf, int]]) -> Callable[[Any], Any]:
    """What makes a record of the values of ``fields``: the rest of the path, the field, where its values
    end."""
    parts: dict[str, list[tuple[tuple[str, ...], _Leaf, int]]] = {}
    for path, leaf, end in fields:
        parts.setdefault(path[0], []).append((path[1:], leaf, end))
    record: Any = namedtuple(name, parts)  # type: ignore[misc]
    new = record._make
    makers = [_part(key, inner) for key, inner in parts.items()]
    return lambda values: new([make(values) for make in makers])


def _part(name: str, fields: Sequence[tuple[tuple[str, ...], _Leaf, int]]) -> Callable[[Any], Any]:
    path, leaf, end = fields[0]
    if path:
        return _maker(name, fields)
    if leaf.code == TEXT:
        return lambda values: values[end - 1][:-1].decode(errors="replace")
    return itemgetter(end - 1) if leaf.count == 1 else itemgetter(slice(end - leaf.count, end))
