"""Detects pictures of H.265 that a decoder must leave out, because they refer to missing pictures."""

from __future__ import annotations

from efftam_ros.images.streams.units import unit_places

# Types of NAL units, ITU-T H.265 table 7-1.
RASL = (8, 9)
BROKEN_LINKS = (16, 17, 18)
CLEAN_REFRESH = 21
RANDOM_ACCESS = range(16, 24)
END_OF_SEQUENCE = (36, 37)


class LeadingPictures:
    """Detects the RASL pictures of one stream that are left out (ITU-T H.265, 8.1.3 and 8.3.3).

    A picture of type RASL may refer to pictures before its random access point. By the standard a decoder
    leaves RASL pictures out if decoding begins at that point, or if the stream declares that the pictures
    before it are not available (a broken link).

    ``head``: the codec's extra data, which show whether NAL units begin with a start code or with their
    length. None or empty: with a start code.
    """

    def __init__(self, head: bytes | None = None) -> None:
        self._length_bytes = 0
        if head and head[0] == 1 and len(head) > 22:  # HEVCDecoderConfigurationRecord, ISO 14496-15, 8.3.3.1
            self._length_bytes = 1 + (head[21] & 3)
        # `_is_new`: whether the next random access point begins a sequence; `_skips`: whether RASL pictures
        # are left out.
        self._is_new, self._skips = True, False

    def is_left_out(self, data: bytes) -> bool:
        """Return whether a decoder leaves out the picture of this packet.

        Must be called with every packet, in the order of decoding. ``data``: the packet's bytes.
        """
        is_left_out = False
        for at in unit_places(data, self._length_bytes):
            kind = data[at] >> 1 & 63
            if kind in RANDOM_ACCESS:
                self._skips = kind in BROKEN_LINKS or (kind == CLEAN_REFRESH and self._is_new)
                self._is_new = False
            elif kind in RASL:
                is_left_out |= self._skips
            elif kind in END_OF_SEQUENCE:
                self._is_new = True
        return is_left_out
