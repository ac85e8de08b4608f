"""A command that tracks by itself: a person draws on its first picture, and then watches."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from benchmarks.page_client import page
from efftam_operator.drawn import drawn_page
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Motion, Prompt, Track, TrackState

PICTURE = np.full((90, 160, 3), 80, np.uint8)


@pytest.fixture
def command():
    """A command on a thread: asks on the picture of stamp 5, then shows three tracked ones."""
    prompts: list[Prompt] = []
    with drawn_page("127.0.0.1", 0, "", "the video is over") as served:
        drawn, (url,) = served.page, served.urls

        def work() -> None:
            prompts.append(drawn.ask(PICTURE, 5))
            for stamp in (6, 7, 8):
                box = Box(stamp, 2, 30, 40)
                motion = Motion(stamp, box, (12.0, -7.0), np.eye(4))
                scores = {"likeness": 0.6, "confidence": 0.8}
                track = Track(stamp, TrackState.TRACKING, box, True, 0.9, 0.75, motion=motion, **scores)
                drawn.show(PICTURE, track)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield url, prompts, thread


async def select(client, stamp=5, id="c1", **fields):
    message = {"op": "select", "id": id, "stamp": str(stamp), "kind": "box", "box": [10, 20, 30, 40]}
    await client.send(**{**message, **fields})
    return await client.answer(id)


def draw_on(command, act):
    """Let ``act`` draw on a page that shows the first picture, until the command has ended; its prompts."""
    url, prompts, thread = command

    async def draw() -> None:
        async with page(url) as client:
            await client.until(lambda: client.frames)
            await act(client)

    asyncio.run(draw())
    thread.join()
    return prompts


def test_the_box_drawn_on_the_first_picture_is_the_prompt(command):
    url, prompts, thread = command

    async def draw() -> None:
        async with page(url) as client:
            frame = (await client.until(lambda: client.frames))[0]
            assert frame.stamp_ns == 5
            (waiting,) = (await client.until(lambda: client.messages("track")))[0]["targets"]
            assert (waiting["presence"], waiting["quality"], waiting["confidence"]) == (None, None, None)
            assert (await select(client))["ok"]
            await client.until(lambda: client.messages("track")[-1]["stamp"] == "8")
            (told,) = client.messages("track")[-1]["targets"]
            assert (told["box"], told["velocity"]) == ([8, 2, 30, 40], [12, -7])
            assert (told["presence"], told["quality"], told["likeness"]) == (0.9, 0.75, 0.6)
            assert told["confidence"] == 0.8

    asyncio.run(draw())
    thread.join()
    assert prompts == [Prompt(box=Box(10, 20, 30, 40))]


async def test_a_page_opened_late_sees_the_picture_too(command):
    url, _, _ = command
    async with page(url) as first:
        await first.until(lambda: len(first.frames) >= 3)
    async with page(url) as second:
        assert (await second.until(lambda: second.frames))[0].stamp_ns == 5


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"stamp": 4}, "the one with 5 ns is shown"),
        ({"box": [200, 10, 5, 5]}, "160 x 90"),
        ({"kind": "points", "points": [[10, 91]], "labels": [1]}, "160 x 90"),
    ],
)
def test_what_cannot_be_a_prompt_is_refused_and_asked_again(command, fields, said):
    _, prompts, _ = command

    async def draw(client) -> None:
        answer = await select(client, **fields)
        assert not answer["ok"]
        assert said in answer["message"]
        assert prompts == []
        assert (await select(client, id="c2"))["ok"]
        answer = await select(client, id="c3")
        assert not answer["ok"]

    draw_on(command, draw)


def test_a_file_that_is_tracked_keeps_its_target(command):
    async def clear(client) -> None:
        await client.send(op="clear", id="c1")
        assert not (await client.answer("c1"))["ok"]
        assert (await select(client, id="c2"))["ok"]

    draw_on(command, clear)
