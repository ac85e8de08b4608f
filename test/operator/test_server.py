"""The page's server over real sockets: who gets in, what they see, who commands."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import aiohttp
import cv2
import numpy as np
import pytest
from barcode_feed import BITS, BLOCK, BarcodeFeed

from benchmarks.page_client import page
from efftam_operator.announce import announcement, own_addresses
from efftam_operator.feed import Lifecycle, Picture
from efftam_operator.server import MAX_STRANGERS, OperatorServer
from efftam_operator.settings import Settings
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.images.palette import STATE_STYLES
from efftam_ros.messages.reports import BoxReport

TOKEN = "0123456789abcdef0123456789abcdef"


def get(url: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read(), dict(response.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def stamp_in(payload: bytes) -> int:
    grey = cv2.imdecode(np.frombuffer(payload, np.uint8), cv2.IMREAD_GRAYSCALE)
    block = BLOCK * grey.shape[1] // 640
    return sum(int(grey[block, block * i + block // 2] > 128) << i for i in range(BITS))


# Files and headers


def test_the_page_is_small_and_bound_to_its_own_server(serve, feed):
    server = serve(feed)
    status, _, headers = get(server.url)
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not [
        name for name in headers if name.lower().startswith("access-control") or name.lower() == "set-cookie"
    ]
    names = ["", *(f"static/{name}" for name in server._files if name != "index.html")]
    assert sum(len(get(server.url + name, **{"Accept-Encoding": "gzip"})[1]) for name in names) < 70_000


@pytest.mark.parametrize(
    "path", ["static/nothing.js", "static/..%2fserver.py", "static/%2e%2e/wire.py", "server.py"]
)
def test_nothing_but_the_page_s_files_is_served(serve, feed, path):
    assert get(serve(feed).url + path)[0] == 404


def test_health_tells_the_state_of_the_chain(serve, feed):
    server = serve(feed)
    status, body, _ = get(server.url + "health")
    assert status == 200
    assert b'"operator":null' in body
    assert b'"viewers":0' in body


def test_the_page_s_palette_is_the_overlay_s(serve, feed):
    _, body, _ = get(serve(feed).url + "static/palette.js")
    for state, style in STATE_STYLES.items():
        assert state.name in body.decode()
        assert style.hex in body.decode()


# Who gets in


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[", "[::1", ""]
)
def test_a_name_that_is_not_this_machine_s_is_refused(serve, feed, host):
    assert get(serve(feed).url, Host=host)[0] == 421


@pytest.mark.parametrize(
    "host", ["localhost:9000", "127.0.0.1:1234", "192.168.1.7:8080", "[::1]:8080", "drone.lan"]
)
def test_addresses_and_known_names_are_served(serve, feed, host):
    assert get(serve(feed, hosts="drone.lan").url, Host=host)[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1:1", "http://["])
def test_a_socket_of_another_site_is_refused(serve, feed, origin):
    async def connect() -> None:
        async with page(serve(feed).url, Origin=origin):
            pass

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        asyncio.run(connect())
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("drone.example", "https://drone.example"),  # a proxy that keeps the name
        ("drone.example:8443", "https://drone.example:8443"),
        ("drone.example", "https://drone.example:8443"),  # nginx: Host $host
        ("127.0.0.1:8080", "https://drone.example"),  # nginx as it comes: the name of the upstream
        ("drone.example:443", "https://drone.example"),
        ("Drone.Example", "https://drone.example"),
        ("localhost:80", "http://localhost"),
        ("10.0.0.9:8080", "http://10.0.0.9:8080"),
        ("127.0.0.1:8080", "https://10.0.0.7:8443"),  # a proxy opened by an address
    ],
)
async def test_behind_a_proxy_the_page_connects_under_a_name_in_hosts(serve, feed, host, origin):
    url = serve(feed, hosts="https://drone.example:8443/, 10.0.0.7").url
    assert get(url, Host=host)[0] == 200
    async with page(url, Host=host, Origin=origin) as client:
        await client.until(lambda: client.order)
        assert client.order[0]["op"] != "refused"


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8080", "https://evil.example"),
        ("127.0.0.1:8080", "http://127.0.0.1:9000"),  # another program of this machine
        ("localhost:8080", "http://drone.example.evil.example"),
        ("drone.example", "https://evil.example"),
    ],
)
def test_a_refusal_is_logged_once_with_what_to_set(serve, feed, host, origin, caplog):
    url = serve(feed, hosts="drone.example").url

    async def connect() -> None:
        async with page(url, Host=host, Origin=origin):
            pass

    for _ in range(3):
        with pytest.raises(aiohttp.WSServerHandshakeError):
            asyncio.run(connect())
    (record,) = caplog.records
    assert f"hosts:={urlsplit(origin).hostname}" in record.getMessage()


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1] + "0", TOKEN + "0", "\ud800", "é" * 32])
async def test_without_the_token_nothing_is_told(serve, feed, token):
    async with page(serve(feed, token=TOKEN).url, token=token) as client:
        await client.until(lambda: client.socket.closed)
        assert client.socket.close_code == 4401
        assert [m["op"] for m in client.order] == ["refused"]


def test_an_address_beyond_this_machine_gets_a_token_of_128_bits():
    feed = BarcodeFeed()
    servers = [OperatorServer(Settings(address="0.0.0.0"), feed=feed) for _ in range(2)]
    tokens = {server.access.token for server in servers}
    assert len(tokens) == 2
    assert all(len(bytes.fromhex(token)) == 16 for token in tokens)
    assert f"#token={servers[0].access.token}" in servers[0].url
    assert OperatorServer(Settings(), feed=feed).access.token is None


def test_every_address_is_a_line_and_the_first_a_qr_code(monkeypatch):
    monkeypatch.setattr("efftam_operator.settings.own_addresses", lambda: ["192.0.2.7", "198.51.100.1"])
    urls = OperatorServer(Settings(address="0.0.0.0", token=TOKEN), feed=BarcodeFeed()).urls
    assert urls == [f"http://{host}:8080/#token={TOKEN}" for host in ("192.0.2.7", "198.51.100.1")]
    first, second, *code = announcement(urls).splitlines()
    assert [first, second] == [f"open {url}" for url in urls]
    # As a camera sees it: two modules a character, light on dark.
    rows = [[" ▄▀█".index(c) >> shift & 1 for c in line] for line in code for shift in (1, 0)]
    picture = np.kron(np.array(rows, np.uint8) * 255, np.ones((8, 8), np.uint8))
    assert cv2.QRCodeDetector().detectAndDecode(picture)[0] == urls[0]
    assert announcement(["http://127.0.0.1:8080/"]) == "open http://127.0.0.1:8080/"


def test_this_computer_s_addresses_can_be_reached_by_others():
    for address in own_addresses():
        assert not address.startswith("127.")
        assert socket.getaddrinfo(address, None)


def test_a_guessable_token_is_refused():
    with pytest.raises(InputError, match="16"):
        OperatorServer(Settings(token="secret"), feed=BarcodeFeed())


def test_a_port_in_use_is_named(serve, feed):
    port = serve(feed).port
    with pytest.raises(InputError, match=str(port)):
        serve(BarcodeFeed(), port=port)


async def test_pages_beyond_the_limit_are_turned_away_until_one_leaves(serve, feed):
    url = serve(feed, most_viewers=1).url
    async with page(url) as first, page(url) as second:
        await second.until(lambda: second.socket.closed)
        assert second.socket.close_code == 4429
        await first.until(lambda: first.frames)
    for _ in range(20):  # the server may hear of it a little later
        async with page(url) as third:
            await third.until(lambda: third.frames or third.socket.closed)
            if third.frames:
                return
        await asyncio.sleep(0.05)
    raise AssertionError("no room")


async def test_sockets_without_the_token_keep_no_page_out(serve, feed, monkeypatch):
    monkeypatch.setattr("efftam_operator.server.HELLO_S", 60.0)
    server = serve(feed, token=TOKEN, most_viewers=2)
    base = server.url.split("#")[0]

    async def say_nothing(session: aiohttp.ClientSession) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.ws_connect(base + "ws", headers={"Origin": base[:-1]}) as socket:
                    await socket.receive()

    # Another computer, as far as the server can tell.
    connector = aiohttp.TCPConnector(limit=0, local_addr=("127.0.0.2", 0))
    async with (
        page(server.url, hello=False) as slow,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        hogs = [asyncio.create_task(say_nothing(session)) for _ in range(MAX_STRANGERS + 8)]
        try:
            for _ in range(10):
                async with page(server.url, token=TOKEN) as client:
                    await client.until(lambda: client.messages("hello"))
                    assert len(server._strangers) <= MAX_STRANGERS + 1
            await slow.send(op="hello", token=TOKEN)
            await slow.until(lambda: slow.messages("hello"))
        finally:
            for hog in hogs:
                hog.cancel()
            await asyncio.gather(*hogs, return_exceptions=True)


async def test_half_written_requests_keep_no_page_out_and_are_dropped(serve, feed, monkeypatch, caplog):
    monkeypatch.setattr("efftam_operator.server.STRANGER_S", 1.0)
    server = serve(feed)
    hogs = []
    for _ in range(2 * MAX_STRANGERS):
        hogs.append(await asyncio.open_connection("127.0.0.1", server.port))
        hogs[-1][1].write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n")
    async with page(server.url) as client:
        await client.until(lambda: client.frames)
        assert len(server._strangers) <= MAX_STRANGERS + 1
        for reader, _ in hogs:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
        seen = len(client.frames)
        await client.until(lambda: len(client.frames) > seen + 5)
    assert len(caplog.records) < 5


# What they see


async def test_a_frame_carries_the_stamp_of_its_picture_and_comes_after_its_track(serve, feed):
    async with page(serve(feed).url) as client:
        await client.until(lambda: len(client.frames) >= 20)
        for frame in client.frames:
            assert stamp_in(frame.payload) == frame.stamp_ns
            assert frame.stamp_ns <= frame.sent_ns
            before = client.order[: client.order.index(frame)]
            assert str(frame.stamp_ns) in {m.get("stamp") for m in before if isinstance(m, dict)}


async def test_with_a_dead_or_inactive_tracker_every_picture_is_shown(serve, feed):
    feed.mute = True
    async with page(serve(feed).url) as client:
        await client.until(lambda: client.messages("status")[-1:] and len(client.frames) > 10)
        await client.until(lambda: client.messages("status")[-1]["tracker"] == "silent")
        assert client.messages("track") == []
        feed.sink(Lifecycle.INACTIVE)
        await client.until(lambda: client.messages("status")[-1]["tracker"] == "inactive")


async def test_a_picture_that_was_shown_small_is_sent_whole_when_it_is_asked_for(serve, feed):
    """Pictures wait until the page has it: it is drawn on, and they are not seen."""
    async with page(serve(feed).url, acknowledges=False) as client:
        small = (await client.until(lambda: client.frames))[0]
        assert (small.width, small.size) == (320, (640, 360))
        await client.send(op="whole", stamp=str(small.stamp_ns))
        whole = await client.until(lambda: next((f for f in client.frames if f.seq == 0), None))
        assert (whole.stamp_ns, whole.width) == (small.stamp_ns, 640)
        count = len(client.frames)
        for seq in (client.frames[-2].seq, small.seq):
            await client.send(op="ack", seq=seq)
        told = len(client.messages("track"))
        await client.until(lambda: len(client.messages("track")) > told + 5)
        assert len(client.frames) == count
        await client.send(op="whole", stamp="12345")  # one that was never sent
        await client.send(op="ack", seq=0)
        await client.until(lambda: len(client.frames) > count)


async def test_a_camera_s_jpeg_passes_untouched(serve, feed):
    data = cv2.imencode(".jpg", np.full((48, 64, 3), 90, np.uint8))[1].tobytes()
    feed.rate_hz = 0.01
    async with page(serve(feed).url) as client:
        await client.until(lambda: client.frames)

        def passed() -> bool:
            stamp = time.time_ns()
            feed.sink(Picture(stamp, jpeg=data))
            feed.sink(BoxReport(stamp))
            return client.frames[-1].payload == data

        while not passed():
            await asyncio.sleep(0.05)
        assert client.frames[-1].size == (0, 0)


async def test_a_picture_that_cannot_be_read_is_named_and_the_next_one_shown(serve, feed):
    def unreadable() -> np.ndarray:
        raise InputError("encoding is 'bayer_xyz'; it is not known")

    feed.rate_hz = 0.01
    async with page(serve(feed).url) as client:
        await client.until(lambda: client.frames)
        for make in (unreadable, lambda: np.zeros((360, 640, 3), np.uint8)):
            stamp = time.time_ns()
            feed.sink(Picture(stamp, bgr=make))
            feed.sink(BoxReport(stamp))
            if make is unreadable:
                await client.until(lambda: "bayer_xyz" in client.messages("status")[-1]["picture"])
        await client.until(lambda: len(client.frames) == 2)
        await client.until(lambda: client.messages("status")[-1]["picture"] == "")


async def test_numbers_that_are_unknown_are_null(serve, feed):
    feed.state = TrackState.LOST
    feed.velocity = (float("nan"), float("inf"))
    async with page(serve(feed).url) as client:
        (target,) = (await client.until(lambda: client.messages("track")))[-1]["targets"]
        assert target["box"] is None
        assert target["quality"] is None
        assert target["likeness"] is None
        assert target["velocity"] == [None, None]
        assert target["state"] == "LOST"


# Who commands


def select(stamp: int, id: str = "c1", **fields: object) -> dict[str, object]:
    return {"op": "select", "id": id, "stamp": str(stamp), "kind": "box", "box": [10, 20, 30, 40], **fields}


async def test_a_selection_reaches_the_tracker_with_the_exact_stamp(serve, feed):
    async with page(serve(feed).url) as client:
        frame = (await client.until(lambda: client.frames))[0]
        await client.send(**select(frame.stamp_ns))
        answer = await client.answer("c1")
        assert (answer["ok"], answer["selection"]) == (True, 1)
        assert answer["message"] == "following selection 1"
        (selection,) = feed.selections
        assert selection.stamp_ns == frame.stamp_ns
        assert selection.box == Box(10, 20, 30, 40)
        await client.until(lambda: client.messages("result"))
        await client.until(lambda: client.messages("track")[-1]["targets"][0]["selection"] == 1)


async def test_a_tracker_that_answers_nothing_is_named(serve, feed):
    feed.mute = True
    async with page(serve(feed, answer_s=0.2).url) as client:
        await client.send(**select(1))
        answer = await client.answer("c1")
        assert not answer["ok"]
        assert "0.2 s" in answer["message"]


async def test_one_page_commands_and_others_view_until_they_take_over(serve, feed):
    url = serve(feed).url
    async with page(url) as first, page(url) as second:
        assert (await first.until(lambda: first.messages("hello")))[0]["role"] == "operator"
        assert (await second.until(lambda: second.messages("hello")))[0]["role"] == "viewer"
        await second.send(**select(1))
        answer = await second.answer("c1")
        assert not answer["ok"]
        assert first.messages("hello")[0]["name"] in answer["message"]
        await second.send(op="clear", id="c2")
        assert not (await second.answer("c2"))["ok"]
        assert feed.selections == []
        assert feed.cleared == []
        await second.send(op="seat", action="take")
        name = second.messages("hello")[0]["name"]
        assert "127.0.0.1" in name
        await first.until(lambda: first.messages("seat")[-1]["holder"] == name)
        await second.send(**select(1, "c3"))
        assert (await second.answer("c3"))["ok"]
        await first.send(**select(1, "c4"))
        assert not (await first.answer("c4"))["ok"]


async def test_what_becomes_of_the_target_when_the_operator_is_lost(serve, feed):
    keeping = BarcodeFeed()
    for one, rule in ((keeping, "keep"), (feed, "clear")):
        async with page(serve(one, on_operator_lost=rule, lease_s=1.0).url) as client:
            await client.until(lambda c=client: c.frames)
    began_s = time.monotonic()
    while not feed.cleared:
        assert time.monotonic() - began_s < 10
        await asyncio.sleep(0.05)
    keeping.close()
    assert (keeping.cleared, feed.cleared) == ([], [255])


async def test_selections_beyond_five_a_second_are_refused(serve, feed):
    async with page(serve(feed).url) as client:
        for i in range(12):
            await client.send(**select(1, f"c{i}"))
        answers = [await client.answer(f"c{i}") for i in range(12)]
        assert [a["ok"] for a in answers[:5]] == [True] * 5
        assert not answers[-1]["ok"]
        assert len(feed.selections) < 8


# Bad messages


async def test_a_page_of_bad_messages_is_cut_off(serve, feed):
    async with page(serve(feed).url) as client:
        for _ in range(30):
            await client.socket.send_str("no json")
        await client.until(lambda: client.socket.closed)
        assert client.socket.close_code == 4400


async def test_a_message_beyond_64_kb_is_cut_off(serve, feed):
    async with page(serve(feed).url) as client:
        await client.until(lambda: client.frames)
        await client.socket.send_str('{"op":"hello","token":"' + "x" * 70_000 + '"}')
        await client.until(lambda: client.socket.closed)
        assert client.socket.close_code == 1009


async def test_a_socket_that_says_nothing_is_closed(serve, feed, monkeypatch):
    monkeypatch.setattr("efftam_operator.server.HELLO_S", 0.2)
    async with page(serve(feed).url, hello=False) as client:
        await client.until(lambda: client.socket.closed)
        assert client.frames == []


async def test_a_page_that_stops_reading_costs_the_server_nothing(serve, feed):
    feed.size = (1920, 1080)
    url = serve(feed).url
    host, port = url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    lines = [
        "GET /ws HTTP/1.1",
        f"Host: {host}:{port}",
        f"Origin: http://{host}:{port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await reader.readuntil(b"\r\n\r\n")
    hello = b'{"op":"hello","token":""}'
    writer.write(bytes([0x81, 0x80 | len(hello), 0, 0, 0, 0]) + hello)
    async with page(url) as client:
        await client.until(lambda: len(client.frames) > 30, 30)
        assert client.messages("status")[-1]["viewers"] == 2
    writer.close()
