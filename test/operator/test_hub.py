"""What pages are shown and told of the chain, whoever looked before and however long ago."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from efftam_operator import hub as hub_module
from efftam_operator.feed import Lifecycle, Limits, NoImages, Picture, Trackers, Unreadable
from efftam_operator.hub import OLD_S, Hub, LastReceived
from efftam_operator.settings import Settings
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from efftam_ros.messages.fields import Outcome
from efftam_ros.messages.reports import BoxReport, MotionReport, ResultReport


class Now(Executor):
    def submit(self, call):
        future = Future()
        future.set_result(call())
        return future


class Page:
    """A viewer that takes each picture once."""

    def __init__(self) -> None:
        self.is_hidden, self.wanted, self.pace = True, None, SimpleNamespace(level=0)
        self.newest_seq, self.shown = 0, []

    def can_take(self, seq: int, level: int) -> bool:
        return not self.is_hidden and seq > self.newest_seq

    def show(self, frame, seq, track, picture, whole_px) -> None:
        self.newest_seq = seq
        self.shown.append(picture.stamp_ns)

    def send(self, message) -> None:
        pass

    def track(self, text) -> None:
        pass


class Chain:
    """A hub with two pages that nobody sees yet."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s, self.count = 100.0, 0
        clock = SimpleNamespace(monotonic=lambda: self.now_s, time_ns=lambda: 0)
        patch.setattr(hub_module, "time", clock)
        patch.setattr(hub_module.jpeg, "encode", lambda *_: (b"jpeg", (64, 48)))
        patch.setattr(hub_module, "ThreadPoolExecutor", lambda *_: Now())
        self.hub, self.pages = Hub(Settings()), [Page(), Page()]
        self.hub.attach(asyncio.get_running_loop())
        self.hub.viewers += self.pages
        self.sending = asyncio.create_task(self.hub.send_frames())

    @property
    def is_watched(self) -> bool:
        return any(not page.is_hidden for page in self.pages)

    def picture(self) -> int:
        self.count += 1
        self.hub.report(Picture(self.count, jpeg=b"jpeg"))
        return self.count

    def answer(self) -> None:
        self.hub.report(BoxReport(self.count, state=TrackState.TRACKING))
        self.hub.report(MotionReport(self.count))

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)


STEPS = st.one_of(
    st.just("picture"),
    st.tuples(st.sampled_from(["show", "hide"]), st.sampled_from([0, 1])),
    st.sampled_from([0.5, OLD_S, OLD_S + 0.5]),
)


@given(st.lists(STEPS, max_size=12))
@example(["picture", OLD_S, ("show", 0), "picture"])
@example([("show", 0), "picture", ("hide", 0), OLD_S + 0.5, ("show", 0), ("show", 1)])
def test_a_page_that_opens_sees_what_is_new_or_what_others_look_at(steps):
    """``steps``: a picture with its answer; a page opens or hides; so many seconds pass."""

    async def run(patch) -> None:
        chain = Chain(patch)
        newest, came_s, wanted = None, -1e9, [[], []]
        for step in steps:
            if step == "picture":
                newest, came_s = chain.picture(), chain.now_s
                chain.answer()
            elif isinstance(step, float):
                chain.now_s += step
            else:
                before, (what, number) = chain.is_watched, step
                chain.pages[number].is_hidden = what == "hide"
                assert chain.hub.watch() == chain.is_watched
                if chain.is_watched and not before:
                    assert chain.hub.status()["camera"] == "alive"
                    newest = newest if chain.now_s - came_s <= OLD_S else None
            await chain.settle()
            for page, seen in zip(chain.pages, wanted, strict=True):
                if not page.is_hidden and newest not in (None, *seen):
                    seen.append(newest)
        chain.sending.cancel()
        assert [page.shown for page in chain.pages] == wanted

    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(run(patch))


async def test_the_first_picture_on_a_page_that_opens_waits_for_its_answer(monkeypatch):
    """However long ago the tracker was heard: it was not asked."""
    chain = Chain(monkeypatch)
    chain.now_s += 60.0
    chain.pages[0].is_hidden = False
    chain.hub.watch()
    chain.picture()
    await chain.settle()
    assert chain.pages[0].shown == []
    chain.answer()
    await chain.settle()
    assert chain.pages[0].shown == [1]
    chain.sending.cancel()


async def test_a_page_that_opens_is_told_what_holds_and_others_what_changes(monkeypatch):
    chain, told = Chain(monkeypatch), []
    chain.pages[0].send = lambda message: told.append(message.get("max_targets"))
    for most in (2, 2, 3, 2):
        chain.hub.report(Limits(8.0, most))
    await chain.settle()
    assert told == [2, 3, 2]
    late, heard = Page(), []
    late.send = lambda message: heard.append(message.get("max_targets"))
    chain.hub.join(late)
    assert heard == [None, 2]
    chain.sending.cancel()


ANSWER, LOST = (BoxReport(0, state=state) for state in (TrackState.TRACKING, TrackState.LOST))


@pytest.mark.parametrize(
    ("events", "tracker", "camera"),
    [
        ([], "silent", "alive"),
        ([(0.0, ANSWER), (0.9, None)], "alive", "alive"),
        ([(0.0, ANSWER), (1.1, None)], "silent", "alive"),
        ([(0.0, LOST), (2.9, None)], "alive", "alive"),  # it searches the whole image
        ([(0.0, LOST), (0.1, ANSWER), (1.2, None)], "silent", "alive"),
        ([(0.0, "inactive"), (0.1, None)], "inactive", "alive"),
        ([(0.0, "inactive"), (0.1, ANSWER), (0.2, None)], "alive", "alive"),
        ([(0.0, "picture"), (1.1, None)], "silent", "stopped"),
        ([(0.0, "picture"), (1.1, "picture"), (1.2, None)], "silent", "alive"),
        ([(0.0, "picture"), (1.1, ANSWER), (1.2, None)], "alive", "unseen"),
    ],
)
def test_the_chain_is_judged_by_what_was_heard_last(events, tracker, camera):
    """``events``: what is heard when, s; the limit is 1 s. Stamps of another clock tell no latency."""
    chain = LastReceived(1.0)
    for at_s, event in events:
        if event == "picture":
            chain.picture(at_s)
        elif event == "inactive":
            chain.inactive = True
        elif event is not None:
            chain.answer(event, -1e9, at_s)
    status = chain.status(events[-1][0] if events else 0.0)
    assert (status["tracker"], status["camera"]) == (tracker, camera)


async def test_an_active_node_is_enough_only_while_nobody_watches(monkeypatch):
    chain = Chain(monkeypatch)
    for is_hidden, tracker in ((True, "alive"), (False, "silent")):
        chain.pages[0].is_hidden = is_hidden
        chain.hub.watch()
        chain.now_s += 60.0
        chain.hub.report(Lifecycle.ACTIVE)
        await chain.settle()
        assert chain.hub.status()["tracker"] == tracker
    chain.sending.cancel()


@pytest.mark.parametrize("way", ["as it comes", "when it is encoded"])
async def test_an_image_that_can_t_be_read_is_tried_once_and_told_until_one_can_or_nobody_watches(
    monkeypatch, way
):
    """Without a page no image comes that could take it back."""
    chain, tried = Chain(monkeypatch), list[Picture]()
    encode = hub_module.jpeg.encode

    def refuse(picture, *how):
        tried.append(picture)
        raise InputError("it is cut off")

    for mend in ("picture", "hide"):
        chain.pages[0].is_hidden = False
        chain.hub.watch()
        if way == "as it comes":
            chain.hub.report(Unreadable("it is cut off"))
        else:
            tried.clear()
            monkeypatch.setattr(hub_module.jpeg, "encode", refuse)
            chain.picture()
            chain.answer()
            await chain.settle()
            chain.pages[1].is_hidden = False
            chain.hub.watch()
        await chain.settle()
        assert chain.hub.status()["picture"] == "it is cut off"
        assert len(tried) == (way != "as it comes")
        monkeypatch.setattr(hub_module.jpeg, "encode", encode)
        if mend == "picture":
            chain.picture()
            chain.answer()
        else:
            for page in chain.pages:
                page.is_hidden = True
            chain.hub.watch()
        await chain.settle()
        assert chain.hub.status()["picture"] == ""
    chain.sending.cancel()


async def test_why_no_image_comes_is_known_until_one_does(monkeypatch):
    chain = Chain(monkeypatch)
    for report, missing in ((NoImages("nothing publishes /image"),) * 2, (Picture(1, jpeg=b"jpeg"), None)):
        chain.hub.report(report)
        await chain.settle()
        assert chain.hub.status()["missing"] == (missing.reason if missing else "")
    chain.sending.cancel()


def test_rate_and_latency_are_those_of_the_last_seconds():
    chain = LastReceived(1.0)
    for number in range(60):
        chain.picture(10.0 + number / 20)
    chain.answer(ANSWER, 41.25, 12.95)
    status = chain.status(13.0)
    assert status["image_hz"] == pytest.approx(20.0, abs=1.0)
    assert (status["latency_ms"], status["image_silent_s"]) == (41.2, 0.1)


async def test_a_tracker_that_was_started_again_is_told_until_it_follows_a_target_again(monkeypatch):
    chain = Chain(monkeypatch)

    def told(*reports) -> bool:
        for report in reports:
            chain.hub._take(report, 0)
        return chain.hub.status()["restarted"]

    def box(state=TrackState.IDLE, reason=""):
        return BoxReport(1, state=state, reason=reason)

    again, cleared = Trackers(("a",), has_restarted=True), ResultReport(0, Outcome.CLEARED)
    assert not told(again)  # nothing was followed
    assert not told(box(TrackState.TRACKING), Trackers(("a", "b")))
    assert told(again)
    assert told(box(), box())
    assert not told(box(TrackState.ACQUIRING))
    assert told(box(), again)  # its first answers came before the graph told of it
    assert not told(box(TrackState.TRACKING), cleared, again)
    assert not told(box(TrackState.TRACKING), box(reason="the target was cleared"), again)
    chain.sending.cancel()


async def test_pictures_that_stand_still_are_told_from_one_second_on(monkeypatch):
    chain = Chain(monkeypatch)
    for still_s, frozen_s in ((0.0, None), (0.9, None), (1.0, 1.0), (7.0, 7.0), (0.0, None)):
        chain.hub._take(Picture(1, jpeg=b"jpeg", still_s=still_s), 0)
        assert chain.hub.status()["frozen_s"] == frozen_s
    chain.sending.cancel()


@pytest.mark.parametrize("error", [RuntimeError("a"), MemoryError(), ValueError("b")])
async def test_one_picture_that_raises_is_told_and_the_next_ones_are_shown(monkeypatch, error):
    chain = Chain(monkeypatch)
    chain.pages[0].is_hidden = False
    chain.hub.watch()
    raises = iter([None, error, None])

    def encode(*_):
        raised = next(raises)
        if raised is not None:
            raise raised
        return b"jpeg", (64, 48)

    monkeypatch.setattr(hub_module.jpeg, "encode", encode)
    for count, errors in ((1, 0), (1, 1), (2, 1)):
        chain.now_s += 1.0
        chain.picture()
        await chain.settle()
        chain.hub._show_newest()
        await chain.settle()
        status = chain.hub.status()
        assert len(chain.pages[0].shown) == count
        assert status["internal_errors"] == errors
        is_told = type(error).__name__ in status["internal_error"]
        assert is_told == (errors > 0)
    assert not chain.sending.done()
    chain.now_s += 11.0
    assert chain.hub.status()["internal_error"] == ""
    chain.sending.cancel()
