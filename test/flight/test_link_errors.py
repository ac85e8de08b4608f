"""No error of the operating system, and no link that takes nothing, ends the bridge or holds it up."""

from __future__ import annotations

import errno
import os
import pty
import select
import socket
import time
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from flight.rig import Desk, GimbalLog, Time
from free_ports import free_port
from hypothesis import example, given, settings
from hypothesis import strategies as st

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.mavlink.dialect import Severity, mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.mavlink.links.connection import Connection
from efftam_flight.mavlink.links.frame_queue import MAX_AGE_S, FrameQueue
from efftam_flight.mavlink.links.opening import connect
from efftam_flight.values import Rates
from simulation.autopilots.memory_link import memory_link

serial = pytest.importorskip("serial")
KINDS = ("udpin", "udpout", "tcp", "tcpin", "serial")
SOCKET_CALLS = (
    *("recvfrom", "recv", "send", "sendto", "accept", "bind", "connect", "connect_ex", "setblocking"),
    *("setsockopt", "getpeername", "close", "listen"),
)
SERIAL_CALLS = {
    "read": (os, "read"),
    "write": (os, "write"),
    "open": (serial.serialposix.os, "open"),
    "close": (serial.serialposix.os, "close"),
    "out_waiting": (serial.serialposix.fcntl, "ioctl"),
    "set up": (serial.serialposix.termios, "tcsetattr"),
}
ERRORS = sorted(errno.errorcode)
NOT_AN_ERROR = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.EINPROGRESS, errno.EALREADY)


class Pair:
    """A link of one kind, and the other end, which is a plain socket or the master of a pseudo-terminal."""

    def __init__(self, kind: str, stack: ExitStack) -> None:
        self.kind, self.stack, self.clock = kind, stack, Time()
        self.peer: Any = None
        self.caller: Any = None  # who called the other end last
        if kind == "serial":
            self.master, slave = pty.openpty()
            tty.setraw(slave)
            os.set_blocking(self.master, False)
            self.address = f"serial:{os.ttyname(slave)}:57600"
            for end in (self.master, slave):
                stack.callback(os.close, end)
            return
        self.stream = kind in ("tcp", "tcpin")
        self.port = free_port(socket.SOCK_STREAM if self.stream else socket.SOCK_DGRAM)
        self.address = f"{kind}:127.0.0.1:{self.port}"
        if kind == "tcp":
            self.server = stack.enter_context(socket.create_server(("127.0.0.1", self.port)))
            self.server.setblocking(False)
        elif not self.stream:
            self.peer = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self.peer.setblocking(False)
            if kind == "udpout":
                self.peer.bind(("127.0.0.1", self.port))

    def open(self) -> Connection:
        link = connect(self.address, self.clock)
        self.stack.callback(link.close)
        return link

    def say(self, data: bytes) -> None:
        """From the other end; the peer of a TCP port calls anew where it has to."""
        with suppress(OSError):
            if self.kind == "serial":
                os.write(self.master, data)
            elif self.kind == "udpin":
                self.peer.sendto(data, ("127.0.0.1", self.port))
            elif self.kind == "udpout":
                if self.caller is not None:
                    self.peer.sendto(data, self.caller)
            elif self.kind == "tcp":
                with suppress(BlockingIOError):
                    self.peer = self.stack.enter_context(self.server.accept()[0])
                    self.peer.setblocking(False)
                if self.peer is not None:
                    self.peer.send(data)
            else:
                if self.peer is None:
                    self.peer = self.stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
                    self.peer.setblocking(False)
                self.peer.send(data)

    def hear(self) -> bytes:
        with suppress(OSError):
            if self.kind == "serial":
                return os.read(self.master, 65536)
            if self.kind == "tcp":
                with suppress(BlockingIOError):
                    self.peer = self.stack.enter_context(self.server.accept()[0])
                    self.peer.setblocking(False)
            if self.peer is None:
                return b""
            if self.kind == "udpout":
                data, self.caller = self.peer.recvfrom(65536)
                return bytes(data)
            data = self.peer.recv(65536)
            if self.kind == "tcpin" and not data:
                self.peer = None
            return bytes(data)
        if self.kind == "tcpin":
            with suppress(OSError):
                self.peer.getpeername()
                return b""
            self.peer = None
        return b""

    def works_both_ways(self, link: Connection) -> bool:
        """Whether a word goes through each way within a few tries, a second of the link's clock apart."""
        came = went = False
        for _ in range(60):
            self.clock.t += 0.25
            link.send(b"to the autopilot")
            time.sleep(0.002)
            went = went or b"to the autopilot" in self.hear()
            self.say(b"to us")
            time.sleep(0.002)
            came = came or b"to us" in b"".join(data for _, data in link.receive())
            if came and went:
                return True
        return False


@contextmanager
def failing(place: Any, name: str, number: int) -> Iterator[list[int]]:
    """Every such call raises this error, at most 1,000 times: more would be a loop without end."""
    calls: list[int] = []
    original = getattr(place, name)

    def fail(*_: Any, **__: Any) -> Any:
        calls.append(1)
        assert len(calls) < 1000, "it is called again and again"
        raise OSError(number, os.strerror(number))

    setattr(place, name, fail)
    try:
        yield calls
    finally:
        if place is socket.socket and name in vars(type(socket.socket)):
            delattr(place, name)
        else:
            setattr(place, name, original)


def use(link: Connection, clock: Time) -> None:
    for _ in range(3):
        clock.t += 1.1
        link.receive()
        link.send(b"frame")
        link.files()


def fail_and_recover(kind: str, place: Any, call: str, number: int) -> None:
    with ExitStack() as stack:
        pair = Pair(kind, stack)
        link = pair.open()
        assert pair.works_both_ways(link)
        before = link.errors
        with failing(place, call, number) as calls:
            use(link, pair.clock)
            calls_in_use = len(calls)
        is_read_or_write = call in ("recvfrom", "recv", "send", "sendto", "read", "write", "accept")
        if calls_in_use and is_read_or_write and number not in NOT_AN_ERROR:
            assert link.errors > before
        assert pair.works_both_ways(link), f"{link.fault}; {link.errors} errors"
        pair.clock.t += 4.0
        link.receive()
        assert link.fault == ""
        with failing(place, call, number):
            link.close()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(call=st.sampled_from(SOCKET_CALLS), number=st.sampled_from(ERRORS))
@example(call="recvfrom", number=errno.EHOSTUNREACH)  # an ICMP message "host prohibited"
@example(call="sendto", number=errno.ENETDOWN)
@example(call="accept", number=errno.EMFILE)
@example(call="close", number=errno.EIO)
def test_any_error_at_any_call_is_counted_and_the_link_works_afterwards(kind, call, number):
    if kind == "serial":
        place, call = SERIAL_CALLS[list(SERIAL_CALLS)[SOCKET_CALLS.index(call) % len(SERIAL_CALLS)]]
        fail_and_recover(kind, place, call, number)
    else:
        fail_and_recover(kind, socket.socket, call, number)


@pytest.mark.parametrize("kind", ["udpin", "udpout", "tcp", "tcpin"])
@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.ENOBUFS])
def test_a_network_that_is_not_up_yet_is_waited_for(kind, number):
    """As when the vehicle's computer starts: the wireless interface comes later."""
    with ExitStack() as stack:
        pair = Pair(kind, stack)
        with ExitStack() as down:
            for call in ("bind", "connect", "connect_ex"):
                down.enter_context(failing(socket.socket, call, number))
            link = pair.open()
            use(link, pair.clock)
            assert pair.address in link.fault
            assert os.strerror(number) in link.fault
            assert "tried again" in link.fault
        assert pair.works_both_ways(link)


def bridge_on(*links: Connection) -> tuple[Bridge, list[tuple[Severity, str]], Time]:
    lines: list[tuple[Severity, str]] = []
    clock = Time()
    bridge = Bridge(
        BridgeConfig(),
        links,
        Desk(),
        GimbalLog(clock),
        clock.instant,
        lambda severity, text: lines.append((severity, text)),
    )
    return bridge, lines, clock


def test_an_error_of_a_link_is_reported_once_and_so_is_its_end(monkeypatch):
    with ExitStack() as stack:
        pair = Pair("udpin", stack)
        link = pair.open()
        bridge, lines, clock = bridge_on(link)
        link._clock = clock
        pair.say(b"hello")
        time.sleep(0.01)
        for is_down in (True, False):
            with failing(socket.socket, "sendto", errno.EHOSTUNREACH) if is_down else ExitStack():
                for _ in range(200):
                    clock.t += 0.05
                    bridge.step()
        about = [(severity, text) for severity, text in lines if pair.address in text]
        assert [severity for severity, _ in about] == [Severity.WARNING, Severity.INFO]
        assert "No route to host" in about[0][1]


# A link that takes nothing


class Drain:
    """The other end of a serial line; it reads when it is told to."""

    def __init__(self, stack: ExitStack) -> None:
        self.master, slave = pty.openpty()
        tty.setraw(slave)
        self.address = f"serial:{os.ttyname(slave)}:921600"
        for end in (self.master, slave):
            stack.callback(os.close, end)

    def read(self) -> bytes:
        data = b""
        while select.select([self.master], [], [], 0.0)[0]:
            data += os.read(self.master, 65536)
        return data


def frames(count: int, first: int = 0) -> list[bytes]:
    encoder = Encoder(1, 100)
    return [encoder.encode(mav.MAVLink_ping_message(first + i, 0, 0, 0)) for i in range(count)]


def numbers(data: bytes) -> list[int]:
    return [message.time_usec for message in Decoder(False).feed(data)]


def test_a_serial_line_that_nobody_reads_takes_whole_frames_or_none_and_holds_nothing_up():
    with ExitStack() as stack:
        drain, clock = Drain(stack), Time()
        line = connect(drain.address, clock)
        stack.callback(line.close)
        sent = frames(2000)
        for frame in sent:
            clock.t += 0.005
            line.send(frame)
        assert line.dropped > 300
        assert "accepted no bytes" in line.fault
        data = drain.read()
        clock.t += 1.0
        late = frames(3, first=5000)
        for frame in late:
            line.send(frame)
        for _ in range(10):  # the rest of the frame that was begun, and the new ones
            line.receive()
            data += drain.read()
        came = numbers(data)
        by_number = dict(enumerate(sent)) | dict(enumerate(late, start=5000))
        assert data == b"".join(by_number[number] for number in came)  # none is cut
        assert came == sorted(came)
        assert came[-3:] == [5000, 5001, 5002]
        clock.t += 4.0
        line.receive()
        assert line.fault == ""


def test_a_serial_line_that_nobody_reads_keeps_no_zero_from_another_link():
    """The thread that reads the links is the one with the watchdog and the zeros."""
    with ExitStack() as stack:
        drain = Drain(stack)
        stuck = connect(drain.address)
        stack.callback(stuck.close)
        ours, theirs = memory_link("autopilot", time.monotonic, 0.0)
        bridge, _, clock = bridge_on(stuck, ours)
        autopilot, heard = Encoder(1, 1), Decoder(True)
        rates: list[float] = []
        begun_s = time.monotonic()
        bridge.take_control(True)
        while time.monotonic() - begun_s < 4.0:
            clock.t = time.monotonic() - begun_s
            theirs.send(autopilot.encode(mav.MAVLink_heartbeat_message(2, mav.MAV_AUTOPILOT_PX4, 0, 0, 4, 3)))
            boot_ms = round(1000 * clock.t) + 5000
            theirs.send(
                autopilot.encode(mav.MAVLink_gimbal_manager_status_message(boot_ms, 12, 1, 1, 100, 0, 0))
            )
            if clock.t < 3.0:
                bridge.set_rates(Rates(0.0, 0.2))
                # Many statuses: the line is full long before the controller ends.
                for _ in range(5):
                    bridge.send(mav.MAVLink_statustext_message(6, b"x" * 50, 0, 0))
            bridge.poll(0.01)
            for _, data in theirs.receive():
                rates += [
                    m.angular_velocity_z
                    for m in heard.feed(data)
                    if m.get_type() == "GIMBAL_MANAGER_SET_ATTITUDE"
                ]
        assert stuck.dropped > 0
        assert rates.count(pytest.approx(0.2)) > 3
        assert rates[-1] == 0.0


@given(
    frame_sizes=st.lists(st.integers(1, 300), min_size=1, max_size=60),
    room=st.lists(st.integers(0, 400), min_size=1, max_size=60),
    pause_s=st.floats(0.0, 0.2),
)
def test_a_queue_gives_whole_frames_in_order_none_of_them_begun_late(frame_sizes, room, pause_s):
    queue, out, begun = FrameQueue(), bytearray(), []
    now_s = 0.0
    put: list[tuple[float, bytes]] = []

    def write(data: bytes) -> int:
        nonlocal left
        taken = min(left, len(data))
        left -= taken
        out.extend(data[:taken])
        if taken:
            begun.append((now_s, data))
        return taken

    for number, size in enumerate(frame_sizes):
        now_s += pause_s
        frame = bytes([number]) * size
        put.append((now_s, frame))
        queue.put(frame, now_s)
        left = room[number % len(room)]
        queue.write(write, now_s)
    left = 10**6
    now_s += pause_s
    queue.write(write, now_s)
    whole = [frame for _, frame in put if out.count(frame[:1]) == len(frame)]
    assert bytes(out) == b"".join(whole)
    assert len(whole) + queue.dropped == len(put)
    for at_s, data in begun:
        put_s, frame = put[data[0]]
        assert len(data) < len(frame) or at_s - put_s <= MAX_AGE_S


def test_a_peer_that_reads_nothing_is_let_go_and_makes_room_for_another():
    with ExitStack() as stack:
        clock, port = Time(), free_port(socket.SOCK_STREAM)
        server = connect(f"tcpin:127.0.0.1:{port}", clock)
        stack.callback(server.close)
        deaf = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(8)]
        for one in deaf:
            one.sendall(b"hi")
        names: set[str] = set()
        while len(names) < 8:
            names |= {name for name, _ in server.receive()}
        late = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        late.sendall(b"late")
        # One that is not let in does not wake the loop again and again.
        server.receive()
        assert select.select(server.files(), [], [], 0.05)[0] == []
        heard = b""
        for _ in range(220):
            clock.t += 0.1
            for _ in range(40):
                server.send(b"x" * 10_000)
            heard += b"".join(data for _, data in server.receive())
        assert heard == b"late"
