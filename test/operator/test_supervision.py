"""An unforeseen error at any boundary of the page's server ends nothing: it is told, and the work goes on."""

from __future__ import annotations

import json
import urllib.request

import pytest
from barcode_feed import BarcodeFeed

from benchmarks.page_client import page
from efftam_operator import server as server_module
from efftam_operator.commands import Commands
from efftam_operator.hub import Hub
from efftam_operator.viewer import Viewer

BOX = {"op": "select", "id": "a", "stamp": "1", "kind": "box", "box": [1, 2, 30, 40]}


def raises_once(patch: pytest.MonkeyPatch, owner: type, name: str) -> list[int]:
    """The next call of a method raises; the list holds how many calls there were."""
    method, calls = getattr(owner, name), [0]

    def call(*given, **named):
        calls[0] += 1
        if calls[0] == 1:
            raise RuntimeError(f"planted in {name}")
        return method(*given, **named)

    patch.setattr(owner, name, call)
    return calls


def health_of(server) -> dict:
    with urllib.request.urlopen(server.url + "health") as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Hub, "send_frames"),  # the task of the pictures
        (Hub, "_made"),  # a picture
        (Commands, "watch_seat"),  # the task of the seat
        (Hub, "_take"),  # a report of the feed
        (Hub, "_show_newest"),  # a timer
        (Hub, "acknowledged"),  # a message of the page
    ],
)
async def test_pictures_and_status_go_on_and_health_tells_of_the_error(serve, feed, monkeypatch, owner, name):
    calls = raises_once(monkeypatch, owner, name)
    monkeypatch.setattr(server_module, "STATUS_S", 0.1)
    server = serve(feed)
    async with page(server.url) as client:
        await client.until(lambda: calls[0] > 1 and client.messages("status"))
        shown, told = len(client.frames), len(client.messages("status"))
        await client.until(
            lambda: len(client.frames) > shown + 3 and len(client.messages("status")) > told + 3
        )
        status = client.messages("status")[-1]
    assert status["internal_errors"] == 1
    assert "planted in" in status["internal_error"]
    assert health_of(server)["internal_error"] == status["internal_error"]


async def test_a_command_that_raises_is_answered_with_the_error_and_the_next_is_done(serve, monkeypatch):
    feed = BarcodeFeed()
    calls = raises_once(monkeypatch, BarcodeFeed, "select")
    server = serve(feed)
    async with page(server.url) as client:
        await client.send(**BOX)
        answer = await client.answer("a")
        assert not answer["ok"]
        assert "planted in select" in answer["message"]
        await client.send(**{**BOX, "id": "b"})
        await client.answer("b")
    assert calls[0] == 2
    assert health_of(server)["internal_errors"] == 1
    feed.close()


async def test_a_page_whose_sending_raises_is_closed_so_that_it_opens_another_link(serve, feed, monkeypatch):
    calls = raises_once(monkeypatch, Viewer, "send_waiting")
    server = serve(feed)
    async with page(server.url) as client:
        await client.until(lambda: client.socket.closed)
    async with page(server.url) as client:
        await client.until(lambda: len(client.frames) > 2)
    assert calls[0] == 2
    assert health_of(server)["internal_errors"] == 1
