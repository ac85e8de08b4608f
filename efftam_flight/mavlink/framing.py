"""Decodes and encodes MAVLink frames by pymavlink. Decoding never raises, whatever bytes arrive."""

from __future__ import annotations

from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.mavlink.signing import Signer, Verifier


class Decoder:
    """Finds the messages in the bytes of one peer.

    ``datagrams``: each piece of bytes holds whole frames, so that an incomplete frame at its end is dropped.
    ``signer``: checks signatures; messages without a valid signature are left out and counted. None: messages
    are not checked.
    """

    def __init__(self, datagrams: bool, signer: Signer | None = None) -> None:
        self._datagrams, self._signer = datagrams, signer
        self._parser = Verifier(None)
        self._parser.robust_parsing = True  # pymavlink returns broken frames as BAD_DATA instead of raising
        if signer is not None:
            self._parser.signing = signer.state

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages whose last byte is among these bytes. Unknown messages are left out."""
        if self._signer is not None:
            self._signer.set_time()
        found = self._parser.parse_buffer(data) or []
        # pymavlink keeps all bytes until its buffer is used up. Decoded bytes are removed here, so that the
        # buffer can't grow.
        del self._parser.buf[: None if self._datagrams else self._parser.buf_index]
        self._parser.buf_index = 0
        known = [m for m in found if not isinstance(m, (mav.MAVLink_bad_data, mav.MAVLink_unknown))]
        return [m for m in known if self._signer is None or self._signer.accepts(m)]


class Encoder:
    """Encodes messages of one component for one link. Each link has its own sequence numbers and, in
    signatures, its own link id."""

    def __init__(
        self, system_id: int, component_id: int, signer: Signer | None = None, link_id: int = 0
    ) -> None:
        self._mav = mav.MAVLink(None, srcSystem=system_id, srcComponent=component_id)
        self._signer, self._link_id = signer, link_id
        if signer is not None:
            self._mav.signing = signer.state

    def encode(self, message: Message) -> bytes:
        if self._signer is not None:
            self._signer.set_time()
            self._signer.state.link_id = self._link_id
        frame: bytes = message.pack(self._mav)
        self._mav.seq = (self._mav.seq + 1) % 256
        return frame
