"""Sequences of commands from two pages: what is done, in which order, and what is remembered after what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from efftam_operator import commands, wire
from efftam_operator.commands import ARMED_FOR_S, ARMED_FROM_S, STATUS_S, Commands
from efftam_operator.feed import CommandAnswer, Controller, SteeringState
from efftam_operator.hub import Hub
from efftam_operator.settings import Settings
from efftam_operator.viewer import Viewer
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.messages.reports import BoxReport, Selection

LEASE_S = 10.0
ALL = wire.MAX_TARGET
BOX = Selection(1, 0, Box(1, 2, 30, 40))
POINT = Selection(1, 0, points=((1.0, 2.0),), labels=(1,))
MESSAGES = {
    "arm": wire.Message("steer", "a", action="arm"),
    "enable": wire.Message("steer", "b", action="enable"),
    "stop": wire.Message("steer", "c", action="stop"),
    "select": wire.Message("select", "d", selection=BOX, turns=True),
    "select without consent": wire.Message("select", "e", selection=BOX),
    "steer by 1": wire.Message("steer_by", "f", target_id=1, turns=True),
    "steer by 1 without consent": wire.Message("steer_by", "g", target_id=1),
    "clear 0": wire.Message("clear", "h"),
    "clear 1": wire.Message("clear", "i", target_id=1),
    "hold": wire.Message("hold", stamp_ns=5),
    "propose": wire.Message("propose", selection=POINT),
    "take": wire.Message("seat", action="take"),
    "release": wire.Message("seat", action="release"),
}
WAITS = st.sampled_from(
    [ARMED_FROM_S - 0.01, ARMED_FROM_S, STATUS_S, ARMED_FOR_S, ARMED_FOR_S + 0.01, LEASE_S + 1]
)
STEPS = st.one_of(
    st.tuples(st.sampled_from([0, 0, 0, 1]), st.sampled_from([*sorted(MESSAGES), "leaves", "joins"])),
    WAITS,
    st.sampled_from(["enabled", "off", "steered by 1"]),
)


class Desk:
    """Commands of two pages, by a clock of its own; ``done``: what came to tracker and gimbal."""

    def __init__(self, patch: pytest.MonkeyPatch, has_gimbal: bool = True) -> None:
        self.now_s, self.done = 0.0, list[str]()
        patch.setattr(commands, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        settings = Settings(lease_s=LEASE_S, on_operator_lost="clear", selections_per_s=1e6)
        self.hub = Hub(settings)
        steering = SimpleNamespace(enable=self._does("enable"), stop=self._does("stop"))
        self.feed = SimpleNamespace(
            select=self._does("select"),
            clear=lambda target_id, reply: self._does(f"clear {target_id}")(reply),
            steer_by=lambda target_id, reply: self._does(f"steer by {target_id}")(reply),
            hold=lambda stamp_ns: self.done.append("hold"),
            propose=lambda selection: self.done.append("propose"),
        )
        following = SimpleNamespace(enable=self._does("allow"), stop=self._does("end"))
        gimbal, vehicle = (steering, following) if has_gimbal else (None, None)
        self.control = Commands(self.feed, gimbal, self.hub, settings, vehicle)
        self.pages = [Viewer(None, f"page {i}", settings) for i in range(2)]
        self.answers: dict[str, bool] = {}
        for page in self.pages:
            page.send = lambda message: self.answers.update({message.get("id", ""): message.get("ok")})
        self.holders = list[str | None]()  # as all pages were told
        tell = lambda message: message["op"] != "seat" or self.holders.append(message["holder"])  # noqa: E731
        self.hub.send_to_all = tell

    def _does(self, what: str):
        def do(*given) -> None:
            self.done.append(what)
            given[-1](CommandAnswer(self.is_willing, what))

        return do

    is_willing = True  # what is asked is done

    def says(self, enabled: bool) -> None:
        """The gimbal's controller."""
        self.hub._take(SteeringState(Controller.RUNNING, enabled), 0)

    async def send(self, page: int, what: str) -> tuple[list[str], bool | None]:
        """What is done for it, and whether it was answered well, None where it has no answer."""
        self.done.clear()
        self.answers.clear()
        self.control.on_message(self.pages[page])
        self.control.carry_out(self.pages[page], MESSAGES[what])
        for _ in range(2):
            await asyncio.sleep(0)
        return list(self.done), self.answers.get(MESSAGES[what].id)

    def wait(self, seconds: float) -> list[str]:
        """What is done meanwhile; the server looks once a second."""
        self.done.clear()
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + 1.0)
            self.control.watch_seat()
        return list(self.done)


class Model:
    """Who is in control since when he was heard, since when nobody is, and what the gimbal does."""

    def __init__(self) -> None:
        self.holder, self.heard_s, self.vacant_s = None, 0.0, None
        self.armed_s: list[float | None] = [None, None]
        self.said, self.enabled_s, self.steered = False, None, None

    def is_steered(self, now_s: float) -> bool:
        return self.said or (self.enabled_s is not None and now_s - self.enabled_s < STATUS_S)

    def vacate(self, now_s: float) -> None:
        self.holder, self.vacant_s = None, now_s

    def take(self, page: int, now_s: float) -> None:
        self.holder, self.heard_s, self.vacant_s = page, now_s, None

    def look(self, now_s: float) -> list[str]:
        if self.holder is not None and now_s - self.heard_s > LEASE_S:
            self.vacate(now_s)
        if self.vacant_s is None or now_s - self.vacant_s < LEASE_S:
            return []
        self.vacant_s = None
        return [*self.stop(now_s), f"clear {ALL}"]

    def stop(self, now_s: float) -> list[str]:
        if not self.is_steered(now_s):
            return []
        self.enabled_s = None
        return ["stop"]

    def send(self, page: int, what: str, now_s: float) -> tuple[list[str], bool | None]:
        if self.holder == page:
            self.heard_s = now_s
        if what in ("hold", "propose"):
            return ([what], None) if self.holder == page else ([], None)
        armed_s, self.armed_s[page] = self.armed_s[page], None
        if what == "stop":
            self.enabled_s = None
            return ["stop"], True
        if what == "release":
            if self.holder == page:
                self.vacate(now_s)
            return [], None
        if what == "take" or self.holder is None:
            self.take(page, now_s)
        if what == "take":
            return [], None
        if self.holder != page or (self.is_steered(now_s) and "without consent" in what):
            return [], False
        if what == "arm":
            self.armed_s[page] = now_s
            return [], True
        if what == "enable":
            if armed_s is None or not ARMED_FROM_S <= now_s - armed_s <= ARMED_FOR_S:
                return [], False
            self.enabled_s = now_s
            return ["enable"], True
        before = []
        if what.startswith("clear") and self.steered in (None, int(what.split()[1])):
            before = self.stop(now_s)
        return [*before, what.removesuffix(" without consent")], True


@examples(max_examples=300)
@given(st.lists(STEPS, max_size=14))
@example([(0, "arm"), ARMED_FROM_S, (0, "enable"), (0, "enable")])
@example([(0, "arm"), ARMED_FROM_S, (0, "steer by 1"), (0, "enable")])
@example([(0, "arm"), ARMED_FROM_S, (0, "enable"), "off", (0, "select without consent")])
@example([(0, "arm"), 1.0, (0, "enable"), (0, "stop"), (0, "select without consent")])
@example([(0, "arm"), 1.0, (0, "enable"), "enabled", (0, "leaves"), LEASE_S + 1])
@example([(0, "leaves"), (0, "joins"), LEASE_S + 1, LEASE_S + 1])
@example(["enabled", "steered by 1", (0, "clear 0"), (0, "clear 1")])
def test_what_comes_to_tracker_and_gimbal_is_what_the_model_says(steps):
    """``steps``: (page, what it does), seconds that pass, or what tracker and controller say."""

    async def run(patch: pytest.MonkeyPatch) -> None:
        desk, model = Desk(patch), Model()
        assert [desk.control.joined(page) for page in desk.pages] == ["operator", "viewer"]
        model.take(0, desk.now_s)
        for step in steps:
            if isinstance(step, float):
                begin_s, wanted = desk.now_s, []
                done = desk.wait(step)
                for at_s in [*(begin_s + k for k in range(1, int(step) + 1)), begin_s + step]:
                    wanted += model.look(at_s) if at_s <= desk.now_s else []
                assert done == wanted
            elif step == "steered by 1":
                desk.hub._take(BoxReport(1, 1, TrackState.TRACKING), 0)
                model.steered = 1
            elif step in ("enabled", "off"):
                desk.says(step == "enabled")
                model.said = step == "enabled"
            elif step[1] == "leaves":
                desk.control.left(desk.pages[step[0]])
                if model.holder == step[0]:
                    model.vacate(desk.now_s)
            elif step[1] == "joins":
                if model.holder is None:
                    model.take(step[0], desk.now_s)
                role = "operator" if model.holder == step[0] else "viewer"
                assert desk.control.joined(desk.pages[step[0]]) == role
            else:
                assert await desk.send(*step) == model.send(*step, desk.now_s), step
            holder = None if model.holder is None else f"page {model.holder}"
            assert desk.control.seat.holder(desk.now_s) == desk.holders[-1] == holder, step
        assert all(before != after for before, after in pairwise(desk.holders))

    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(run(patch))


async def test_what_the_controller_refused_to_steer_needs_no_confirmation_of_another_target(monkeypatch):
    desk = Desk(monkeypatch)
    desk.is_willing = False
    await desk.send(0, "arm")
    desk.now_s += 1.0
    assert await desk.send(0, "enable") == (["enable"], False)
    assert (await desk.send(0, "steer by 1 without consent"))[0] == ["steer by 1"]


async def test_without_a_gimbal_steering_is_refused(monkeypatch):
    desk = Desk(monkeypatch, has_gimbal=False)
    for what in ("stop", "arm", "enable"):
        assert await desk.send(0, what) == ([], False)
    assert await desk.send(0, "clear 0") == (["clear 0"], True)


async def test_of_two_answers_to_a_command_the_first_counts(monkeypatch):
    desk = Desk(monkeypatch)
    desk.feed.select = lambda selection, reply: [reply(CommandAnswer(ok)) for ok in (True, False)]
    assert await desk.send(0, "select") == ([], True)


async def test_what_is_only_added_turns_the_gimbal_where_no_target_is_steered_by(monkeypatch):
    desk = Desk(monkeypatch)
    added = wire.Message("select", "j", selection=replace(BOX, target_id=ALL))
    monkeypatch.setitem(MESSAGES, "add without consent", added)
    desk.says(True)
    assert await desk.send(0, "add without consent") == ([], False)
    desk.hub._take(BoxReport(1, state=TrackState.TRACKING), 0)
    assert await desk.send(0, "add without consent") == (["select"], True)


FOLLOWING = {
    "arm follow": wire.Message("follow", "k", action="arm"),
    "enable follow": wire.Message("follow", "l", action="enable"),
    "end follow": wire.Message("follow", "m", action="stop"),
}


async def test_following_is_allowed_by_two_presses_of_its_own_and_ended_by_any_page(monkeypatch):
    for name, message in FOLLOWING.items():
        monkeypatch.setitem(MESSAGES, name, message)
    desk = Desk(monkeypatch)
    assert await desk.send(0, "enable follow") == ([], False)
    for first, second in (("arm", "enable follow"), ("arm follow", "enable")):  # one of the other switch
        assert await desk.send(0, first) == ([], True)
        desk.now_s += 1.0
        assert await desk.send(0, second) == ([], False)
    assert await desk.send(0, "arm follow") == ([], True)
    desk.now_s += ARMED_FOR_S + 0.1
    assert await desk.send(0, "enable follow") == ([], False)
    assert await desk.send(0, "arm follow") == ([], True)
    desk.now_s += 1.0
    assert await desk.send(0, "enable follow") == (["allow"], True)
    assert await desk.send(1, "arm follow") == ([], False)  # a page that only views
    assert await desk.send(1, "end follow") == (["end"], True)


async def test_without_a_bridge_following_is_refused(monkeypatch):
    for name, message in FOLLOWING.items():
        monkeypatch.setitem(MESSAGES, name, message)
    desk = Desk(monkeypatch, has_gimbal=False)
    for what in FOLLOWING:
        assert await desk.send(0, what) == ([], False)
