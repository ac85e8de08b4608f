"""MAVLink 2 signing, against pymavlink as the other end of real UDP and TCP links."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

os.environ["MAVLINK20"] = "1"  # else pymavlink's connections speak MAVLink 1

import numpy as np
import pytest
from flight.rig import Desk, GimbalLog, Time
from free_ports import free_port
from pymavlink import mavutil

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.mavlink.dialect import Severity, mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.mavlink.links.opening import connect
from efftam_flight.mavlink.signing import AHEAD, EPOCH_S, UNITS_PER_S, Signer
from efftam_ros.core.errors import InputError

KEY, OTHER = bytes(range(32)), bytes(32)
NOW = 1_800_000_000.0
UNITS = int((NOW - EPOCH_S) * UNITS_PER_S)
RECT, BOX = mav.MAV_CMD_CAMERA_TRACK_RECTANGLE, (0.4, 0.4, 0.6, 0.6)
BEAT = mav.MAVLink_heartbeat_message(mav.MAV_TYPE_GCS, mav.MAV_AUTOPILOT_INVALID, 0, 0, 4, 3)


def key_file(folder: Path, text: str = KEY.hex(), mode: int = 0o600) -> Path:
    file = folder / "key"
    file.write_text(f"{text}  -\n")  # as sha256sum prints it
    file.chmod(mode)
    return file


class Ends:
    """A bridge with a key and a ground station of pymavlink, joined by sockets."""

    def __init__(self, address: str, station: str, file: Path, stack: ExitStack) -> None:
        self.desk, self.lines = Desk(), []
        link = connect(address)
        self.station = mavutil.mavlink_connection(station, source_system=255, source_component=190)
        stack.callback(self.station.close)
        self.signer = Signer(file)
        self.bridge = Bridge(
            BridgeConfig(),
            [link],
            self.desk,
            GimbalLog(Time()),
            lambda: Instant(time.time_ns(), time.monotonic()),
            lambda severity, text: self.lines.append((severity, text)),
            self.signer,
        )
        stack.callback(link.close)

    def until(self, holds: Callable[[], object]) -> None:
        """Steps both ends, a heartbeat of the station each time."""
        end = time.monotonic() + 10
        while not holds():
            assert time.monotonic() < end, self.lines
            self.station.mav.heartbeat_send(mav.MAV_TYPE_GCS, mav.MAV_AUTOPILOT_INVALID, 0, 0, 4)
            self.bridge.step()
            time.sleep(0.01)

    def asks_for_a_box(self) -> None:
        self.station.mav.command_long_send(1, 100, RECT, 0, *BOX, 0, 0, 0)

    def hears(self, kind: str) -> bool:
        message = self.station.recv_match(type=kind, blocking=False)
        return message is not None and message.get_signed()


@pytest.fixture(params=["udp", "tcp"])
def ends(request, tmp_path) -> Iterator[Ends]:
    kind = socket.SOCK_STREAM if request.param == "tcp" else socket.SOCK_DGRAM
    port = free_port(kind)
    addresses = {
        "udp": (f"udpin:127.0.0.1:{port}", f"udpout:127.0.0.1:{port}"),
        "tcp": (f"tcpin:127.0.0.1:{port}", f"tcp:127.0.0.1:{port}"),
    }[request.param]
    with ExitStack() as stack:
        yield Ends(*addresses, key_file(tmp_path), stack)


def test_with_the_same_key_both_ends_hear_each_other(ends):
    ends.station.setup_signing(KEY)
    ends.until(lambda: ends.hears("HEARTBEAT"))
    ends.asks_for_a_box()
    ends.until(lambda: ends.desk.requests)
    ends.until(lambda: ends.hears("COMMAND_ACK"))
    assert ends.station.mav.signing.badsig_count == 0
    assert ends.signer.refused == {}


@pytest.mark.parametrize(("key", "kind"), [(None, "unsigned"), (OTHER, "wrongly signed")])
def test_what_is_not_signed_by_the_key_is_refused_counted_and_told_once(ends, key, kind):
    if key:
        ends.station.setup_signing(key)
    ends.asks_for_a_box()
    ends.until(lambda: ends.signer.refused.get(kind, 0) >= 20)
    assert ends.desk.requests == []
    (line,) = [text for severity, text in ends.lines if severity is Severity.WARNING]
    assert f"{kind} messages are refused" in line
    assert "255/190" in line
    assert "signing_key" in line
    ends.bridge.close()
    assert f"{ends.signer.refused[kind]} {kind}" in ends.lines[-1][1]


def pair(folder: Path, clock: Callable[[], float] = lambda: NOW) -> tuple[Signer, Decoder, mav.MAVLink]:
    """Ours, and pymavlink's encoder with the same key."""
    signer = Signer(key_file(folder), clock)
    theirs = mav.MAVLink(None, 255, 190)
    theirs.signing.secret_key, theirs.signing.sign_outgoing = KEY, True
    theirs.signing.timestamp = UNITS
    return signer, Decoder(True, signer), theirs


@pytest.mark.parametrize(
    ("sent", "heard", "refused"),
    [
        ("signed signed", [0, 1], {}),
        ("radio", [], {}),  # it can't sign: nothing to complain of
        ("unsigned signed old unsigned signed", [1, 4], {"unsigned": 3}),  # none takes the next with it
        ("signed again", [0], {"wrongly signed": 1}),
        ("forged signed", [1], {"wrongly signed": 1}),  # from far ahead: it does not silence its stream
    ],
)
@pytest.mark.parametrize("datagrams", [True, False])
def test_which_frames_are_heard_and_what_is_refused(tmp_path, sent, heard, refused, datagrams):
    """``again``: the frame of before, by another link; ``old``: by MAVLink 1."""
    signer, _, theirs = pair(tmp_path)
    forger = mav.MAVLink(None, 255, 190)
    forger.signing.secret_key, forger.signing.sign_outgoing = OTHER, True
    forger.signing.timestamp = UNITS + 10**9
    decoder, found, frame = Decoder(datagrams, signer), [], b""
    for number, kind in enumerate(sent.split()):
        theirs.signing.sign_outgoing = kind == "signed"
        if kind == "again":
            decoder = Decoder(datagrams, signer)
        elif kind == "radio":
            frame = mav.MAVLink_radio_status_message(200, 200, 99, 10, 10, 0, 0).pack(theirs)
        else:
            frame = BEAT.pack(forger if kind == "forged" else theirs, force_mavlink1=kind == "old")
        pieces = [frame] if datagrams else [bytes([byte]) for byte in frame]
        found += [number for piece in pieces for _ in decoder.feed(piece)]
    assert (found, signer.refused) == (heard, refused)


# Times


def time_of(frame: bytes) -> tuple[int, int]:
    """Link id and time of a signed frame."""
    return frame[-13], int.from_bytes(frame[-12:-6], "little")


def test_times_follow_the_clock_ahead_and_what_is_heard_and_each_link_has_its_id(tmp_path):
    now = [NOW]
    signer, decoder, theirs = pair(tmp_path, lambda: now[0])
    links = [Encoder(1, 100, signer, number) for number in range(2)]
    seen = [time_of(link.encode(BEAT)) for link in (*links, *links)]
    assert seen == [(0, UNITS), (1, UNITS + 1), (0, UNITS + 2), (1, UNITS + 3)]
    encoder = links[0]
    now[0] += 5.0
    first = time_of(encoder.encode(BEAT))[1]
    assert first == UNITS + 5 * UNITS_PER_S
    now[0] = 100.0  # as without a clock of its own
    assert time_of(encoder.encode(BEAT))[1] > first
    theirs.signing.timestamp = UNITS + 10**7
    decoder.feed(BEAT.pack(theirs))
    assert time_of(encoder.encode(BEAT))[1] >= UNITS + 10**7


@pytest.mark.parametrize("end", ["killed", "closed"])
def test_times_go_on_after_a_restart_with_a_clock_that_went_back(tmp_path, end):
    now = [NOW]
    signer = Signer(key_file(tmp_path), lambda: now[0])
    encoder, last = Encoder(1, 100, signer), 0
    for _ in range(200):
        now[0] += 0.5
        signer.keep()
        last = time_of(encoder.encode(BEAT))[1]
    if end == "closed":
        signer.close()
    now[0] = 0.0
    again = time_of(Encoder(1, 100, Signer(tmp_path / "key", lambda: now[0])).encode(BEAT))[1]
    assert last < again <= last + (1 if end == "closed" else AHEAD)


def test_the_time_is_stored_each_ten_seconds_and_not_more_often(tmp_path):
    now = [NOW]
    signer = Signer(key_file(tmp_path), lambda: now[0])
    stored = []
    for now[0] in np.arange(NOW, NOW + 35.0, 0.5):
        signer.keep()
        stored.append((tmp_path / "key.time").read_text())
    assert len(set(stored)) == 4


# The key


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        *((KEY.hex(), mode, rf"mode {mode:03o}.*chmod 600") for mode in (0o644, 0o640, 0o602, 0o660)),
        *(
            (text, 0o600, "64 hexadecimal digits")
            for text in ("", "secret", KEY.hex()[:-2], KEY.hex() + "00")
        ),
    ],
)
def test_a_key_that_is_none_or_that_others_may_use_is_refused_in_one_line_and_not_shown(
    tmp_path, text, mode, words
):
    with pytest.raises(InputError, match=words) as refused:
        Signer(key_file(tmp_path, text, mode))
    assert "\n" not in str(refused.value)
    assert not text or text not in str(refused.value)
    with pytest.raises(InputError, match=r"nothing.*No such file"):
        Signer(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["", "soon", "-1", str(1 << 48)])
def test_a_stored_time_that_is_none_is_refused_with_the_remedy(tmp_path, text):
    file = key_file(tmp_path)
    (tmp_path / "key.time").write_text(text)
    with pytest.raises(InputError, match=r"key\.time.*remove"):
        Signer(file)


def test_a_time_that_can_not_be_stored_is_refused_at_the_start_and_told_later(ends, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    file = key_file(folder)
    (folder / "key.time.new").mkdir()
    with pytest.raises(InputError, match="folder of the key"):
        Signer(file)
    ends.station.setup_signing(KEY)
    (tmp_path / "key.time.new").mkdir()
    ends.signer._stored = 0  # as if the stored time was near
    ends.until(lambda: any("can't be stored" in text for _, text in ends.lines))
