"""Sequences of commands: what is remembered after what."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from unittest import mock

from barcode_feed import BarcodeFeed, RecordedSteering
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box
from efftam_ros.messages.reports import Selection
from efftam_ros.operator import commands, wire
from efftam_ros.operator.commands import ARMED_FOR_S, ARMED_FROM_S, Commands
from efftam_ros.operator.feed import CommandAnswer
from efftam_ros.operator.hub import Hub
from efftam_ros.operator.settings import Settings
from efftam_ros.operator.viewer import Viewer

BOX = Selection(1, 0, Box(1, 2, 30, 40))
MESSAGES = {
    "arm": wire.Message("steer", "a", action="arm"),
    "enable": wire.Message("steer", "b", action="enable"),
    "stop": wire.Message("steer", "c", action="stop"),
    "select": wire.Message("select", "d", selection=BOX, turns=True),
    "refused select": wire.Message("select", "e", selection=BOX),
    "other target": wire.Message("steer_by", "f", target_id=1, turns=True),
    "clear": wire.Message("clear", "g"),
    "hold": wire.Message("hold", stamp_ns=5),
    "propose": wire.Message("propose", selection=Selection(1, 0, points=((1.0, 2.0),), labels=(1,))),
    "take": wire.Message("seat", action="take"),
}
DOES_NOT_COMMAND = ("hold", "propose")
WAITS = st.sampled_from([0.0, ARMED_FROM_S - 0.01, ARMED_FROM_S, 1.0, ARMED_FOR_S, ARMED_FOR_S + 0.01])
STEPS = st.tuples(st.sampled_from([0, 0, 0, 1]), st.sampled_from(sorted(MESSAGES)), WAITS)


@examples(deadline=None, max_examples=300)
@given(st.lists(STEPS, max_size=14))
@example([(0, "arm", 0.0), (0, "enable", ARMED_FROM_S), (0, "enable", 1.0)])
@example([(0, "arm", 0.0), (0, "enable", ARMED_FOR_S)])
@example([(0, "arm", 1.0), (0, "other target", 1.0), (0, "enable", 1.0)])
def test_only_two_presses_of_who_is_in_control_with_nothing_between_enable_the_gimbal(steps):
    """``steps``: (page, what it sends, the time before it)."""

    async def run() -> tuple[list[bool], list[bool]]:
        clock = SimpleNamespace(monotonic=lambda: now_s)
        feed, steering, now_s = BarcodeFeed(), RecordedSteering(), 0.0
        feed.sink = steering.sink = lambda report: None
        settings = Settings(lease_s=3600.0)
        done, wanted = [], []
        with mock.patch.object(commands, "time", clock):
            control = Commands(feed, steering, Hub(settings), settings)
            pages = [Viewer(None, f"page {i}", settings) for i in (1, 2)]
            for page in pages:
                control.joined(page)
            holder, armed = 0, {}
            for page, what, wait_s in steps:
                now_s += wait_s
                steering.calls.clear()
                control.carry_out(pages[page], MESSAGES[what])
                done.append("enable" in steering.calls)
                # The model.
                pressed_s = armed.get(page) if what in DOES_NOT_COMMAND else armed.pop(page, None)
                is_in_time = pressed_s is not None and ARMED_FROM_S <= now_s - pressed_s <= ARMED_FOR_S
                wanted.append(what == "enable" and page == holder and is_in_time)
                if what == "arm" and page == holder:
                    armed[page] = now_s
                if what == "take":
                    holder = page
        return done, wanted

    done, wanted = asyncio.run(run())
    assert done == wanted


def test_what_the_controller_refused_to_steer_needs_no_confirmation_of_another_target():
    async def run() -> list[str]:
        feed, told = BarcodeFeed(), []
        steering = SimpleNamespace(enable=lambda reply: reply(CommandAnswer(False, "no gimbal")))
        feed.sink = lambda report: None
        settings = Settings()
        control = Commands(feed, steering, Hub(settings), settings)
        page = Viewer(None, "page", settings)
        page.tell = lambda message: told.append(message.get("message", ""))
        control.joined(page)
        page.armed_s = time.monotonic() - 1.0
        control.carry_out(page, MESSAGES["enable"])
        control.carry_out(page, wire.Message("steer_by", "f", target_id=1))
        await asyncio.sleep(0)
        return told

    assert not any("would turn" in message for message in asyncio.run(run()))
