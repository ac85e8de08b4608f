"""Links over real sockets and a real pseudo-terminal."""

from __future__ import annotations

import errno
import gc
import os
import pty
import select
import socket
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from unittest.mock import Mock

import pytest
from flight.rig import Desk, GimbalLog, Time
from free_ports import free_port

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.mavlink.dialect import Severity
from efftam_flight.mavlink.framing import Decoder
from efftam_flight.mavlink.links.connection import Connection
from efftam_flight.mavlink.links.opening import connect


@pytest.fixture
def opened() -> Iterator[Callable[[str], Connection]]:
    with ExitStack() as stack:

        def open_one(address: str) -> Connection:
            return stack.enter_context(closing(connect(address)))

        yield open_one


def wait_for(
    link: Connection, data: bytes, again: Callable[[], None] = lambda: None
) -> list[tuple[str, bytes]]:
    """All pieces until ``data`` has come."""
    pieces: list[tuple[str, bytes]] = []
    end = time.monotonic() + 5
    while data not in b"".join(part for _, part in pieces):
        assert time.monotonic() < end, pieces
        again()
        select.select(link.files(), [], [], 0.05)
        pieces += link.receive()
    return pieces


@pytest.mark.parametrize(
    ("kind", "listens", "calls"),
    [(socket.SOCK_DGRAM, "udpin", "udpout"), (socket.SOCK_STREAM, "tcpin", "tcp")],
    ids=["udp", "tcp"],
)
def test_a_listener_answers_all_who_called_tells_them_apart_and_frees_its_port(opened, kind, listens, calls):
    port = free_port(kind)
    listener = opened(f"{listens}:127.0.0.1:{port}")
    callers = [opened(f"{calls}:127.0.0.1:{port}") for _ in range(2)]
    listener.send(b"nobody there yet")
    names = []
    for number, caller in enumerate(callers):
        word = b"%d" % number
        pieces = wait_for(listener, word, lambda to=caller, word=word: to.send(word))
        names += [name for name, data in pieces if word in data][:1]
    assert len(set(names)) == 2
    for caller in callers:
        wait_for(caller, b"to all", lambda: listener.send(b"to all"))
    listener.close()
    for caller in callers:
        caller.close()
    opened(f"{listens}:127.0.0.1:{port}")


def test_of_more_than_eight_callers_the_longest_silent_is_forgotten_and_all_after_a_silent_minute(opened):
    now, port = [0.0], free_port()
    with closing(connect(f"udpin:127.0.0.1:{port}", lambda: now[0])) as listener:
        callers = [opened(f"udpout:127.0.0.1:{port}") for _ in range(9)]
        for now[0], number in enumerate([*range(8), 0, 8]):
            callers[number].send(b"%d" % number)
            wait_for(listener, b"%d" % number)
        for now[0], deaf in ((60.0, {1}), (62.5, {1, 2}), (70.0, set(range(9)))):
            listener.send(b"to all")
            for caller in callers:
                select.select(caller.files(), [], [], 0.05 if callers.index(caller) in deaf else 5)
            heard = {number for number, caller in enumerate(callers) if caller.receive()}
            assert heard == set(range(9)) - deaf


def test_of_callers_without_number_the_bridge_keeps_a_few_unfinished_frames():
    clock, link = Time(), Mock(address="udpin", datagrams=True, fault="")
    bridge = Bridge(BridgeConfig(), [link], Desk(), GimbalLog(clock), clock.instant, lambda *line: None)
    for caller in range(200):
        link.receive.return_value = [(str(caller), b"\xfd")]
        bridge.step()
    assert sum(isinstance(each, Decoder) for each in gc.get_objects()) < 100


def test_a_port_where_nobody_listens_is_no_error(opened):
    caller = opened(f"udpout:127.0.0.1:{free_port()}")
    for _ in range(5):
        caller.send(b"x")
        assert caller.receive() == []


def test_tcp_waits_for_a_server_and_calls_again_when_it_went_away(opened):
    port = free_port(socket.SOCK_STREAM)
    caller = opened(f"tcp:127.0.0.1:{port}")
    caller.send(b"lost")
    assert caller.receive() == []
    names = set()
    for word in (b"one", b"two"):
        with closing(connect(f"tcpin:127.0.0.1:{port}")) as server:
            pieces = wait_for(server, word, lambda w=word: caller.send(w))
            assert b"lost" not in b"".join(data for _, data in pieces)
            server.send(word)
            names |= {name for name, _ in wait_for(caller, word)}
    assert len(names) == 2  # what the last connection left of a frame is none of this one's


def drops_calls(stack: ExitStack) -> int:
    """The port of a server that answers no call: its queue is full."""
    server = stack.enter_context(socket.socket())
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    for _ in range(4):
        caller = stack.enter_context(socket.socket())
        caller.setblocking(False)
        caller.connect_ex(server.getsockname())
    return int(server.getsockname()[1])


def test_a_tcp_port_that_answers_no_call_blocks_nothing(monkeypatch):
    waits: list[float | None] = []
    call = socket.socket.connect_ex

    def connect_ex(sock: socket.socket, place: tuple[str, int]) -> int:
        waits.append(sock.gettimeout())
        return call(sock, place)

    def blocking(*_: object, **__: object) -> None:
        raise AssertionError("a call that waits")

    with ExitStack() as stack:
        port = drops_calls(stack)
        monkeypatch.setattr(socket.socket, "connect_ex", connect_ex)
        monkeypatch.setattr(socket, "create_connection", blocking)
        now = [0.0]
        caller = stack.enter_context(closing(connect(f"tcp:127.0.0.1:{port}", lambda: now[0])))
        for _ in range(700):
            now[0] += 0.01
            caller.send(b"x")
            assert caller.receive() == []
            assert caller.files() == []
            assert not caller._stream.queue._waiting  # it would be old when the call is answered
    assert waits == [0.0, 0.0, 0.0]  # after 0, 3 and 6 s


def test_a_tcp_host_that_nobody_knows_is_named():
    with pytest.raises(OSError, match=r"nowhere\.invalid.*name"):
        connect("tcp:nowhere.invalid:5760")


def test_a_peer_that_does_not_read_blocks_nothing(opened):
    port = free_port(socket.SOCK_STREAM)
    server = opened(f"tcpin:127.0.0.1:{port}")
    with socket.create_connection(("127.0.0.1", port)) as deaf:
        deaf.sendall(b"hi")
        wait_for(server, b"hi")
        for _ in range(2000):
            server.send(b"x" * 10_000)


def test_a_serial_line_both_ways(opened):
    pytest.importorskip("serial")
    master, slave = pty.openpty()
    tty.setraw(slave)
    line = opened(f"serial:{os.ttyname(slave)}:57600")
    os.write(master, b"from the autopilot")
    wait_for(line, b"from the autopilot")
    line.send(b"from us")
    assert os.read(master, 100) == b"from us"
    os.close(slave)
    os.close(master)
    # The device is gone: no error, and no answer.
    for _ in range(3):
        line.send(b"x")
        line.receive()


def test_a_serial_device_s_faults_are_told_once_each_with_the_remedy_and_its_recovery(tmp_path, monkeypatch):
    pytest.importorskip("serial")
    device, clock, lines = tmp_path / "ttyACM0", Time(), []
    link = connect(f"serial:{device}:57600", clock)
    bridge = Bridge(
        BridgeConfig(),
        [link],
        Desk(),
        GimbalLog(clock),
        clock.instant,
        lambda severity, text: lines.append((severity, text)),
    )

    def told() -> list[tuple[Severity, str]]:
        lines.clear()
        for _ in range(80):  # 8 s: longer than a repeated line is held back
            clock.t += 0.1
            bridge.step()
        return [line for line in lines if "ttyACM0" in line[1]]

    def one_warning(*parts: str) -> None:
        ((severity, text),) = told()
        assert severity is Severity.WARNING
        assert all(part in text for part in (f"serial:{device}:57600", *parts)), text
        assert "\n" not in text

    one_warning("No such file", "cable")
    assert told() == []
    assert link.files() == link.receive() == []
    with monkeypatch.context() as patch:
        refuse = Mock(side_effect=PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        patch.setattr(os, "open", refuse)
        one_warning("Permission denied", "dialout")
        assert refuse.call_count == pytest.approx(8, abs=1)  # once a second
    device.write_text("")
    one_warning("Inappropriate ioctl", "no serial line")
    device.unlink()
    master, slave = pty.openpty()
    device.symlink_to(os.ttyname(slave))
    assert told() == [(Severity.INFO, f"serial:{device}:57600 is open")]
    assert told() == []
    assert link.fault == ""
    for end in (slave, master):
        os.close(end)
    device.unlink()
    one_warning("No such file", "cable")
    link.close()


@pytest.mark.parametrize(
    "address",
    ["", "udp", "14550", "udpin:14550", "udpin:host:port", "udpin:127.0.0.1:0", "udpout:h:99999", "ftp:h:1"],
)
def test_an_address_that_is_none_is_refused_with_what_one_is(address):
    with pytest.raises(ValueError, match=r"MAVLink address|65535"):
        connect(address)


def test_a_port_that_is_taken_is_named(opened):
    port = free_port()
    opened(f"udpin:127.0.0.1:{port}")
    with pytest.raises(OSError, match=str(port)):
        connect(f"udpin:127.0.0.1:{port}")
