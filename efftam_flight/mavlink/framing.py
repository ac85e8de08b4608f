"""MAVLink frames out of bytes and into bytes, by pymavlink. Nothing that comes in raises."""

from __future__ import annotations

from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.mavlink.signing import Signer, Verifier


class Decoder:
    """Finds the messages in one peer's bytes.

    ``datagrams``: every piece holds whole frames; what is left of it is dropped. ``signer``: whole messages
    without a right signature are left out; it counts them.
    """

    def __init__(self, datagrams: bool, signer: Signer | None = None) -> None:
        self._datagrams, self._signer = datagrams, signer
        self._parser = Verifier(None)
        self._parser.robust_parsing = True  # broken frames are given as BAD_DATA
        if signer is not None:
            self._parser.signing = signer.state

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that these bytes complete. Messages outside the dialect are left out."""
        if self._signer is not None:
            self._signer.set_time()
        found = self._parser.parse_buffer(data) or []
        # pymavlink keeps what it has read until nothing is left of it.
        del self._parser.buf[: None if self._datagrams else self._parser.buf_index]
        self._parser.buf_index = 0
        known = [m for m in found if not isinstance(m, (mav.MAVLink_bad_data, mav.MAVLink_unknown))]
        return [m for m in known if self._signer is None or self._signer.accepts(m)]


class Encoder:
    """Makes frames of one component for one link: each link counts its own sequence, and has its own id in
    signatures."""

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
