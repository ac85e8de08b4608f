"""A browser, the page's node and the tracker with the network that ships, on a rendered scene whose truth is
known."""

from __future__ import annotations

import contextlib
import json
import signal
import statistics
import sys
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the page needs aiohttp")
from efftam_ros.msg import BoundingBox, SelectionResult
from operator_page import Hands, address_in, chromium, operator_command
from ros_helpers import ROOT, Peer, Process, box_of, new_namespace

from efftam_ros.core.geometry import Box, iou
from efftam_ros.images.message import stamp_ns

SIZE = (1280, 720)
CAMERA = str(ROOT / "test" / "operator" / "scene_camera.py")
PARAMETERS = str(ROOT / "config" / "tracker.yaml")
# How well a box must lie on the car to be the car's.
GOOD = 0.5
# An answer this new is of an image that has just come, ns.
LEVEL_NS = 500_000_000
# Shared memory of Fast DDS through which a process receives.
PORT = "fastrtps_port"


def loosely(box: Box) -> Box:
    """A little too large, as people draw."""
    return Box(box.x - 3, box.y - 3, box.width + 6, box.height + 6)


class Watch:
    """Camera, tracker and page's node as processes, a person at a page, and a peer that hears the boxes."""

    def __init__(self, start: Callable[[list[str]], Process], browser) -> None:
        self._start = start
        self.namespace = new_namespace()
        self.peer = Peer(self.namespace)
        self.camera = start([sys.executable, CAMERA, "--namespace", self.namespace, "--fps", "15"])
        self.start_tracker()
        self.start_operator()
        self.peer.wait(lambda: self.camera.output.endswith("\n"), "the scene", 60)
        self.truth = [Box(*xywh) for xywh in json.loads(self.camera.output.splitlines()[0])]
        self.context = browser.new_context(viewport={"width": 1280, "height": 860})
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.hands = Hands(self.page, SIZE)

    def start_tracker(self) -> None:
        node = [sys.executable, str(ROOT / "scripts" / "efftam_tracker"), "--ros-args"]
        self.tracker = self._start([*node, "-r", f"__ns:=/{self.namespace}", "--params-file", PARAMETERS])

    def start_operator(self) -> None:
        self.operator = self._start(operator_command(self.namespace))
        self.peer.wait(lambda: address_in(self.operator.output), "the operator's address")

    @property
    def health(self) -> dict:
        """What the page's node says of the chain; raises OSError."""
        with urllib.request.urlopen(address_in(self.operator.output) + "health", timeout=10) as answer:
            return json.load(answer)

    def open_page(self) -> None:
        """A page that hears of the tracker."""

        def hears_of_the_tracker() -> None:
            self.health  # noqa: B018 - hung or not
            self.page.goto(address_in(self.operator.output))
            self.peer.wait(lambda: self.health["tracker"] == "alive", "the tracker to be heard of")

        self._unless_lost("operator", hears_of_the_tracker, self.start_operator)

    def _unless_lost(self, name: str, is_well: Callable[[], None], start: Callable[[], None]) -> None:
        """Start a process anew, once, of which ``is_well`` raises an error. Where processes are killed or
        starved beside, Fast DDS 2.14 and 3.2 may never return from taking an image (eProsima/Fast-DDS issue
        6500), or leave a process with a shared-memory port that nobody writes to. No test is about that."""
        try:
            return is_well()
        except (OSError, AssertionError):
            process = getattr(self, name)
        lost = "ended"
        if process.alive:
            maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            lost = [line.split("/")[-1] for line in maps if PORT in line and "(deleted)" in line]
        warnings.warn(f"the {name} is lost in Fast DDS ({lost}) and started anew", stacklevel=2)
        process.send(signal.SIGKILL)
        process.wait()
        start()
        is_well()

    def begin_anew(self) -> None:
        """No target, and a page that was just opened."""
        with self.telling():
            self._unless_lost("tracker", self.peer.wait_until_active, self.start_tracker)
            self.open_page()
            self.hands.see()
            self.peer.clear()
            self.hands.wait_text("#state", "IDLE")
            self.catch_up()

    def car(self, stamp: int) -> Box:
        """Where the car was in the image of this stamp."""
        return self.truth[stamp % 1000]

    @property
    def shown(self) -> int:
        """The stamp of the picture on the page."""
        return int(self.page.get_attribute("#view", "data-stamp"))

    def freeze(self) -> int:
        """Hold the picture; its stamp."""
        self.page.focus("#view")
        self.hands.keys("Space")
        self.hands.wait_mode("frozen")
        return self.shown

    def draw(self, box: Box) -> int:
        """Drag this box on the picture that is held; the number of the selection."""
        known = len(self.peer.results)
        self.hands.drag(box.x, box.y, box.x1, box.y1)

        def decided() -> list[SelectionResult]:
            return [r for r in self.peer.results[known:] if r.outcome != SelectionResult.CLEARED]

        self.wait(lambda: bool(decided()), "what became of the selection")
        (result,) = decided()
        assert result.outcome == SelectionResult.ACCEPTED, result.message
        self.wait(lambda: self.newest().selection == result.selection, "a box of the selection")
        return result.selection

    def select(self) -> int:
        """Draw the car on the picture of now; the number of the selection."""
        self.freeze()
        number = self.draw(loosely(self.car(self.shown)))
        self.hands.wait_text("#state", "TRACKING")
        self.catch_up()
        return number

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        with self.telling():
            self.peer.wait(condition, what)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """A failure within tells what page, nodes and camera did last."""
        try:
            yield
        except Exception as error:
            raise AssertionError(f"{error}\n{self._account()}") from error

    def _account(self) -> str:
        lines = [f"the last box: {self.peer.boxes[-1:]}", self.page.locator("body").inner_text()[:1000]]
        return "\n".join([*lines, *(p.output[-1500:] for p in (self.camera, self.tracker, self.operator))])

    def catch_up(self) -> None:
        """Hear what was said while only the page was looked at."""

        def is_level() -> bool:
            boxes = self.peer.boxes
            return bool(boxes) and time.time_ns() - stamp_ns(boxes[-1].header.stamp) < LEVEL_NS

        self.peer.wait(is_level, "an answer to a new image")

    def newest(self) -> BoundingBox:
        return self.peer.boxes[-1]

    @property
    def newest_ns(self) -> int:
        return stamp_ns(self.newest().header.stamp)

    def boxes(self, count: int) -> list[BoundingBox]:
        """The next answers of the tracker."""
        first = len(self.peer.boxes)
        self.peer.wait(lambda: len(self.peer.boxes) >= first + count, f"{count} boxes", 60)
        return self.peer.boxes[first : first + count]

    def overlap(self, boxes: list[BoundingBox]) -> float:
        """With the car, the median of these answers; one without a measured box counts as zero."""
        return statistics.median(
            iou(box_of(box), self.car(stamp_ns(box.header.stamp))) if box.measured else 0.0 for box in boxes
        )

    def wait_for_end_of(self, banner: str) -> None:
        self.page.locator(f"#banners [data-id={banner}]").wait_for(state="detached")

    def close(self) -> None:
        self.context.close()
        self.peer.close()


@pytest.fixture(scope="module")
def browser(ros):
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def _watch(ros, browser, tmp_path_factory):
    started: list[Process] = []

    def start(command: list[str]) -> Process:
        started.append(Process(command, tmp_path_factory.mktemp("process") / "log"))
        return started[-1]

    made = Watch(start, browser)
    yield made
    made.close()
    for process in started:
        process.end()


@pytest.fixture
def watch(_watch):
    """The chain without a target."""
    _watch.begin_anew()
    return _watch


def test_a_box_drawn_on_a_picture_seconds_old_ends_on_the_car(watch):
    """The picture is held for seconds, in which the car goes on; what is drawn is where it was then."""
    held = watch.freeze()
    watch.peer.spin_for(2.5)
    watch.wait(lambda: iou(watch.car(held), watch.car(watch.newest_ns)) < GOOD, "the car to be elsewhere")
    assert watch.shown == held
    assert watch.newest_ns - held > 2_000_000_000
    number = watch.draw(loosely(watch.car(held)))
    watch.hands.wait_text("#state", "TRACKING")
    watch.catch_up()
    answers = watch.boxes(20)
    assert {box.selection for box in answers} == {number}
    assert watch.overlap(answers) > GOOD


def test_a_box_drawn_elsewhere_than_the_car_is_not_on_the_car(watch):
    """So that the overlap above is the drawing's merit."""
    car = watch.car(watch.freeze())
    watch.draw(Box(car.x - 200, car.y - 120, car.width, car.height))
    assert watch.overlap(watch.boxes(9)) < GOOD


def test_boxes_flow_on_when_the_page_is_killed(watch):
    number = watch.select()
    watch.operator.send(signal.SIGKILL)
    answers = watch.boxes(45)
    assert {box.selection for box in answers} == {number}
    assert watch.overlap(answers) > GOOD
    watch.hands.wait_text("#banners", "NO LINK")
    watch.operator.wait()
    watch.start_operator()


def test_a_page_stays_open_while_the_tracker_is_started_anew(watch):
    watch.select()
    watch.tracker.send(signal.SIGTERM)
    assert watch.tracker.wait() == 0
    watch.hands.wait_text("#banners", "TRACKER SILENT")
    watch.start_tracker()
    watch.wait_for_end_of("silent")
    watch.hands.wait_text("#state", "IDLE")
    watch.peer.wait_until_active()
    assert watch.select() == 1  # the count of selections begins anew
    assert watch.overlap(watch.boxes(10)) > GOOD
