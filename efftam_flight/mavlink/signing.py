"""MAVLink 2 signing by pymavlink: reads the key, keeps a time that never goes back, and counts refused
messages.

All links share one key, one time, and the last time of each stream (system, component, link id). So a frame
that has arrived on one link is refused as a repeat on all links.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from efftam_flight.mavlink.dialect import Message, mav
from efftam_ros.core.errors import InputError

KEY_BYTES = 32
# Times in signatures count from 2015-01-01 UTC, in units of 10 us.
EPOCH_S, UNITS_PER_S = 1_420_070_400, 100_000
LIMIT = 1 << 48
# After a crash no time may be used a second time. So the stored time is ahead of the present time by AHEAD,
# and a new one is stored when half of AHEAD has passed. An orderly end of the program stores the exact time.
AHEAD = 20 * UNITS_PER_S


class Verifier(mav.MAVLink):
    """pymavlink's codec, changed so that it does not store times of frames with a wrong signature.

    pymavlink itself stores them. With one forged frame from the far future an attacker could make pymavlink
    refuse all later frames of a component.
    """

    def check_signature(self, frame: bytearray, system: int, component: int) -> bool:
        known = dict(self.signing.stream_timestamps)
        if super().check_signature(frame, system, component):
            return True
        self.signing.stream_timestamps = known
        return False


class Signer:
    """Holds the key and the time that all links sign with.

    ``clock``: returns seconds since 1970. If this clock is set back, the times in signatures continue to
    increase. Raises InputError if the file holds no key, if other users may read it, or if the time can't be
    stored in the same folder.
    """

    def __init__(self, key_file: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._store = clock, key_file.with_name(key_file.name + ".time")
        self.state = mav.MAVLinkSigning()
        self.state.secret_key, self.state.sign_outgoing = read_key(key_file), True
        # Unsigned frames are decoded here, so that their sender can be logged. `Decoder` leaves them out.
        self.state.allow_unsigned_callback = lambda *_: True
        self.refused: dict[str, int] = {}  # number of refused messages: "unsigned" and "wrongly signed"
        self.news: list[str] = []  # lines for the log, one for the first refused message of each kind
        self._stored = 0
        try:
            self.state.timestamp = int(self._store.read_text()) if self._store.exists() else 0
            if not 0 <= self.state.timestamp < LIMIT:
                raise ValueError
            self.keep()
        except ValueError:
            raise InputError(
                f"signing_key: {self._store} holds no valid time; set the clock, then remove the file"
            ) from None
        except OSError as error:
            raise InputError(
                f"signing_key: {self._store} can't be written: {error.strerror}; make the folder of the key"
                " writable"
            ) from error

    def accepts(self, message: Message) -> bool:
        """Return whether a message has a valid signature. Refused messages are counted."""
        if message.get_signed():
            return True
        if message.get_msgId() == mav.MAVLINK_MSG_ID_RADIO_STATUS:
            return False  # not counted: a radio sends this message about itself, and can't sign
        is_signed = message.get_header().incompat_flags & mav.MAVLINK_IFLAG_SIGNED
        kind = "wrongly signed" if is_signed else "unsigned"
        self.refused[kind] = self.refused.get(kind, 0) + 1
        if self.refused[kind] == 1:
            sender = f"{message.get_srcSystem()}/{message.get_srcComponent()}"
            self.news.append(
                f"{kind} messages are refused, such as {message.get_type()} of {sender}; let that"
                " component sign with the key in signing_key, and set both clocks"
            )
        return False

    def set_time(self) -> None:
        """Advance the time to the clock's present time, before a frame is signed or checked. The time never
        goes back, because a frame with an earlier time than the last one would be refused."""
        self.state.timestamp = max(self.state.timestamp, int((self._clock() - EPOCH_S) * UNITS_PER_S))

    def keep(self) -> None:
        """Store the time in its file if this is due. Raise OSError if that fails."""
        self.set_time()
        if self.state.timestamp + AHEAD // 2 > self._stored:
            self._write(self.state.timestamp + AHEAD)

    def close(self) -> None:
        """Store the exact time at the end of the program. Raise OSError if that fails."""
        self._write(self.state.timestamp)

    def _write(self, timestamp: int) -> None:
        new = self._store.with_name(self._store.name + ".new")
        try:
            new.write_text(f"{timestamp}\n")
            new.replace(self._store)
        finally:
            new.unlink(missing_ok=True)
        self._stored = timestamp


def read_key(file: Path) -> bytes:
    """Return the 32 bytes of the key in a file. The file must begin with 64 hexadecimal digits, as sha256sum
    prints them.

    Raise InputError if the file can't be read, if others than its owner may use it, or if it holds no key.
    The error never contains the file's content.
    """
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            keys = opened.read(4096).split()
    except OSError as error:
        raise InputError(f"signing_key: {file} can't be read: {error.strerror}; correct the path") from error
    if mode & 0o077:
        raise InputError(
            f"signing_key: {file} has mode {mode:03o}, so other users may read it; chmod 600 {file}"
        )
    try:
        key = bytes.fromhex(keys[0].decode()) if keys else b""
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InputError(
            f"signing_key: {file} does not begin with 64 hexadecimal digits; write the SHA-256 of the"
            " passphrase that the ground station has"
        )
    return key
