"""Finds lost pictures of H.264 by their number (frame_num), which FFmpeg replaces silently."""

from __future__ import annotations

from collections.abc import Iterator

from efftam_ros.images.streams.units import unit_places

SLICE, IDR_SLICE, SPS = 1, 5, 7
HIGH_PROFILES = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)
# What is read of a unit: the start of a slice, a whole set of parameters.
HEAD_BYTES = 256


class PictureNumbers:
    """Follows the pictures of one stream (ITU-T H.264, 7.3 and 7.4.3).

    ``head``: the codec's extra data, which show whether units begin with a start code or with their length.
    """

    def __init__(self, head: bytes | None = None) -> None:
        self._length_bytes = 0
        self._bits: int | None = None  # of frame_num; None: not known, or gaps are allowed
        self._planes = False
        self._last: int | None = None  # of the last picture that others refer to
        if head and head[0] == 1 and len(head) > 8:  # ISO 14496-15, 5.3.3.1
            self._length_bytes = 1 + (head[4] & 3)
            self._read_parameters(_Bits(_content(head[9:])))

    def lacks(self, data: bytes) -> bool:
        """Return whether a picture between the last one and that of this packet is missing."""
        for reference, kind, bits in _units(data, self._length_bytes):
            try:
                if kind == SPS:
                    self._read_parameters(bits)
                elif kind in (SLICE, IDR_SLICE):
                    return self._is_gap(bits, kind == IDR_SLICE, reference > 0)
            except IndexError:  # cut off
                return False
        return False

    def _is_gap(self, bits: _Bits, is_first: bool, is_reference: bool) -> bool:
        if self._bits is None:
            return False
        for _ in range(3):  # first_mb_in_slice, slice_type, pic_parameter_set_id
            bits.number()
        if self._planes:
            bits.take(2)
        number, last = bits.take(self._bits), self._last
        if is_reference:
            self._last = number
        if is_first or last is None:
            return False
        return number not in (last, (last + 1) % (1 << self._bits))

    def _read_parameters(self, bits: _Bits) -> None:
        profile = bits.take(24) >> 16
        bits.number()
        planes = False
        if profile in HIGH_PROFILES:
            chroma = bits.number()
            planes = chroma == 3 and bits.take(1) == 1
            bits.number(), bits.number(), bits.take(1)  # bit depths, transform bypass
            if bits.take(1):
                for i in range(8 if chroma != 3 else 12):
                    if bits.take(1):
                        _pass_scaling_list(bits, 16 if i < 6 else 64)
        width = 4 + bits.number()
        order = bits.number()
        if order == 0:
            bits.number()
        elif order == 1:
            bits.take(1), bits.number(), bits.number()
            for _ in range(bits.number()):
                bits.number()
        bits.number()  # reference frames
        # At the end: parameters that are cut off leave those of before.
        self._bits, self._planes = None if bits.take(1) else width, planes


class _Bits:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> int:
        value = 0
        for _ in range(count):
            value = value << 1 | self._data[self._at >> 3] >> (7 - (self._at & 7)) & 1
            self._at += 1
        return value

    def number(self) -> int:
        """Return an Exp-Golomb code as unsigned."""
        zeros = 0
        while not self.take(1):
            zeros += 1
        return (1 << zeros) - 1 + self.take(zeros)


def _pass_scaling_list(bits: _Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            code = bits.number()
            following = (last + ((code + 1) // 2 if code % 2 else -code // 2)) % 256
        last = following or last


def _units(data: bytes, length_bytes: int) -> Iterator[tuple[int, int, _Bits]]:
    """Yield nal_ref_idc, nal_unit_type and the bits of each unit."""
    for at in unit_places(data, length_bytes):
        yield data[at] >> 5 & 3, data[at] & 31, _Bits(_content(data[at + 1 :]))


def _content(data: bytes) -> bytes:
    """Return the first bytes of a unit, without those that keep start codes out of it."""
    return data[:HEAD_BYTES].replace(b"\0\0\3", b"\0\0")
