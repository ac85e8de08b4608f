"""MAVLink frames out of bytes and into bytes. Nothing that comes in raises."""

from __future__ import annotations

from efftam_ros.flight.mavlink.dialect import Message, mav
from efftam_ros.flight.mavlink.signing import Signer, Verifier

V1, V2 = mav.PROTOCOL_MARKER_V1, mav.PROTOCOL_MARKER_V2
SIGNED = mav.MAVLINK_IFLAG_SIGNED
UNKNOWN_PREFIX = "UNKNOWN"


class Decoder:
    """Finds the messages in one peer's bytes.

    After a broken frame the search goes on one byte further, so that a damaged length cannot swallow the
    whole frames behind it; until the next frame whose checksum is right, a message outside the dialect, whose
    checksum nobody can tell, is not believed either. ``datagrams``: every piece holds whole frames; what is
    left of it is dropped. ``signer``: whole messages without a right signature are left out; it counts them.
    """

    def __init__(self, datagrams: bool, signer: Signer | None = None) -> None:
        self._datagrams, self._signer = datagrams, signer
        self._bytes = bytearray()
        self._decoder = Verifier(None)
        if signer is not None:
            self._decoder.signing = signer.state
        self._in_step = datagrams

    def feed(self, data: bytes) -> list[Message]:
        """The messages that these bytes complete. Messages outside the dialect are left out."""
        self._bytes += data
        if self._signer is not None:
            self._signer.set_time()
        messages: list[Message] = []
        position = 0
        while position < len(self._bytes):
            length = _frame_length(self._bytes, position)
            if length is None:
                position += 1
                continue
            if length == 0 or position + length > len(self._bytes):
                if not self._datagrams:
                    break
                # The frame was cut off: what looks like its inside may still hold whole ones.
                message = None
            else:
                message = self._decode(bytes(self._bytes[position : position + length]))
            unknown = message is not None and message.get_type().startswith(UNKNOWN_PREFIX)
            if message is None or (unknown and not self._in_step):
                self._in_step = False
                position += 1
                continue
            position += length
            if not unknown:
                self._in_step = True
                if self._signer is None or self._signer.accepts(message):
                    messages.append(message)
        if self._datagrams:
            self._bytes.clear()
            self._in_step = True
        else:
            del self._bytes[:position]
        return messages

    def _decode(self, frame: bytes) -> Message | None:
        try:
            return self._decoder.decode(bytearray(frame))
        except mav.MAVError:
            return None


def _frame_length(data: bytearray, position: int) -> int | None:
    """Bytes of the frame that starts here; None when none does, 0 when too little is there to tell."""
    if data[position] == V1:
        return 0 if len(data) - position < 2 else data[position + 1] + 8
    if data[position] != V2:
        return None
    if len(data) - position < 3:
        return 0
    flags = data[position + 2]
    if flags & ~SIGNED:
        return None
    return data[position + 1] + 12 + (mav.MAVLINK_SIGNATURE_BLOCK_LEN if flags & SIGNED else 0)


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
