"""Detects lost pictures of H.264 by gaps in frame_num. FFmpeg replaces lost pictures without an error."""

from __future__ import annotations

from collections.abc import Iterator

from efftam_ros.images.streams.units import unit_places

SLICE, IDR_SLICE, SPS = 1, 5, 7
HIGH_PROFILES = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)
# Bytes of a NAL unit that are read: enough for the needed fields of a slice header or a parameter set.
HEAD_BYTES = 256


class PictureNumbers:
    """Compares the numbers (frame_num) of the pictures of one stream (ITU-T H.264, 7.3 and 7.4.3).

    ``head``: the codec's extra data, which show whether NAL units begin with a start code or with their
    length. None or empty: with a start code.
    """

    def __init__(self, head: bytes | None = None) -> None:
        self._length_bytes = 0
        # Number of bits of frame_num. None: not known yet, or the stream may have gaps in frame_num.
        self._bits: int | None = None
        self._planes = False  # whether the colour planes are coded separately
        self._last: int | None = None  # frame_num of the last reference picture
        if head and head[0] == 1 and len(head) > 8:  # AVCDecoderConfigurationRecord, ISO 14496-15, 5.3.3.1
            self._length_bytes = 1 + (head[4] & 3)
            self._read_parameters(_Bits(_content(head[9:])))

    def lacks(self, data: bytes) -> bool:
        """Return whether a picture is missing between the previous packet and this one.

        Must be called with every packet, in the order of decoding. ``data``: the packet's bytes.
        """
        for reference, kind, bits in _units(data, self._length_bytes):
            try:
                if kind == SPS:
                    self._read_parameters(bits)
                elif kind in (SLICE, IDR_SLICE):
                    return self._is_gap(bits, kind == IDR_SLICE, reference > 0)
            except IndexError:  # the unit is truncated
                return False
        return False

    def _is_gap(self, bits: _Bits, is_first: bool, is_reference: bool) -> bool:
        if self._bits is None:
            return False
        for _ in range(3):  # skips first_mb_in_slice, slice_type and pic_parameter_set_id
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
            bits.number(), bits.number(), bits.take(1)  # skips the bit depths and the transform bypass flag
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
        bits.number()  # skips max_num_ref_frames
        # The attributes are set only now, so that a truncated parameter set changes none of them.
        self._bits, self._planes = None if bits.take(1) else width, planes


class _Bits:
    """Reads the bits of some bytes, one after the other. Raises IndexError if no bits are left."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> int:
        value = 0
        for _ in range(count):
            value = value << 1 | self._data[self._at >> 3] >> (7 - (self._at & 7)) & 1
            self._at += 1
        return value

    def number(self) -> int:
        """Read an unsigned Exp-Golomb code and return its value."""
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
    """Yield nal_ref_idc, nal_unit_type and the following bits of each NAL unit of a packet.

    ``length_bytes``: see `unit_places`.
    """
    for at in unit_places(data, length_bytes):
        yield data[at] >> 5 & 3, data[at] & 31, _Bits(_content(data[at + 1 :]))


def _content(data: bytes) -> bytes:
    """Return the first bytes of a NAL unit, without its emulation prevention bytes."""
    return data[:HEAD_BYTES].replace(b"\0\0\3", b"\0\0")
