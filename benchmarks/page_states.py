"""Takes screenshots of the operator's page in many states at four sizes, for people to look at.

A simulated camera, tracker and gimbal feed the page with one frame of the demo's clip. A headless Chromium
shows it. Writes OUT/STATE-WIDTHxHEIGHT.png, and OUT/WIDTHxHEIGHT.png with all states of a size side by side.
"""

from __future__ import annotations

import argparse
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.browser import Hands, chromium
from efftam_operator.feed import (
    CommandAnswer,
    Controller,
    FollowState,
    GimbalAngles,
    Limits,
    Link,
    Picture,
    Proposal,
    Reply,
    Sink,
    SteeringState,
)
from efftam_operator.server import OperatorServer, serving
from efftam_operator.settings import Settings
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.images.camera import open_source
from efftam_ros.messages.positions import HeightSource, PositionReport
from efftam_ros.messages.reports import BoxReport, MotionReport, Selection
from efftam_ros.tools.demo import CLIP

SIZES = ((360, 640), (640, 360), (820, 1180), (1440, 900))
IMAGE = (1280, 720)
RATE_HZ = 8.0
CLIP_FRAME = 40
ANGLES = GimbalAngles(-41, 12, (-90, 30), (None, None))
COLUMNS = 4
# Number of times, 0.5 s apart, that a screenshot without a banner of a slow link is tried.
MAX_ATTEMPTS = 40
SLOW_LINK = "#banners [data-id=small], #banners [data-id=picture]"


@dataclass
class Stage:
    """A simulated camera, tracker and gimbal, which report what its fields state.

    ``picture``: every image, uint8 [H, W, 3]. ``car``, ``twin``: boxes of two targets, px; the second one is
    reported if ``has_twin``. ``runs``: whether images arrive. ``answers``: whether the tracker answers.
    ``offers``: whether the lost target's place is proposed.
    """

    picture: np.ndarray
    car: Box
    twin: Box
    state: TrackState = TrackState.IDLE
    reason: str = ""
    age_s: float = 0.0
    presence: float = 0.97
    has_twin: bool = False
    # Where the tracker reports the target; None: at the car.
    seen: Box | None = None
    runs: bool = True
    answers: bool = True
    offers: bool = False
    sink: Sink | None = None
    gimbal: SteeringState | None = field(
        default_factory=lambda: SteeringState(Controller.RUNNING, phase="off", angles=ANGLES)
    )
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self, sink: Sink) -> None:
        is_first, self.sink = self.sink is None, sink
        if is_first:
            threading.Thread(target=self._run, daemon=True).start()
        sink(Limits(8.0, 4))
        self.tell_gimbal(self.gimbal)

    def tell_gimbal(self, gimbal: SteeringState | None) -> None:
        self.gimbal = gimbal
        if self.sink is not None and gimbal is not None:
            self.sink(gimbal)

    def close(self) -> None:
        self._ended.set()

    def watch(self, watched: bool) -> None: ...

    def hold(self, stamp_ns: int) -> None: ...

    def propose(self, selection: Selection) -> None:
        assert self.sink is not None
        self.sink(Proposal(selection.stamp_ns, self.car))

    def select(self, selection: Selection, reply: Reply) -> None:
        reply(CommandAnswer(True, "following selection 2", 2))

    def clear(self, target_id: int, reply: Reply) -> None:
        reply(CommandAnswer(True, "cleared"))

    def steer_by(self, target_id: int, reply: Reply) -> None:
        reply(CommandAnswer(True))

    def enable(self, reply: Reply) -> None:
        reply(CommandAnswer(True, "enabled"))

    def stop(self, reply: Reply) -> None:
        reply(CommandAnswer(True, "stopped"))

    def _run(self) -> None:
        assert self.sink is not None
        while not self._ended.wait(1 / RATE_HZ):
            if not self.runs:
                continue
            stamp_ns = time.time_ns()
            self.sink(Picture(stamp_ns, bgr=lambda: self.picture))
            if self.answers:
                self._answer(stamp_ns)
            if self.offers:
                self.sink(Proposal(stamp_ns, self.car, is_lost=True))

    def _answer(self, stamp_ns: int) -> None:
        assert self.sink is not None
        measured = self.state in (TrackState.TRACKING, TrackState.ACQUIRING)
        shown = self.state not in (TrackState.IDLE, TrackState.LOST)
        reports = [(0, self.state, self.seen or self.car, measured, self.reason)]
        if self.has_twin:
            reports.append((1, TrackState.TRACKING, self.twin, True, ""))
        for target_id, state, box, is_measured, reason in reports:
            common: dict[str, Any] = {
                "state": state,
                "selection": 1,
                "reason": reason,
                "measured": is_measured,
            }
            common |= {"age_s": 0.0 if is_measured else self.age_s}
            self.sink(MotionReport(stamp_ns, target_id, valid=shown, velocity=(46.0, -21.0), **common))
            self.sink(
                BoxReport(
                    stamp_ns,
                    target_id,
                    image_size=IMAGE,
                    box=box if shown or target_id else None,
                    presence=self.presence if is_measured else 0.12,
                    quality=0.88 if is_measured else float("nan"),
                    likeness=0.81 if is_measured else float("nan"),
                    steered=target_id == 0,
                    **common,
                )
            )


Do = Callable[[Stage, Hands], None]
"""Brings the page into a state, by changes of the stage and by input of the person at the page."""


def followed(state: TrackState = TrackState.TRACKING, **changes: Any) -> Do:
    """Return a function that brings the target to TRACKING, then sets fields of the stage, and the state."""

    def do(stage: Stage, hands: Hands) -> None:
        stage.state = TrackState.TRACKING
        hands.wait_text("#state", "TRACKING")
        for name, value in changes.items():
            setattr(stage, name, value)
        stage.state = state
        hands.wait_text("#state", state.name)

    return do


def idle(stage: Stage, hands: Hands) -> None:
    hands.wait_text("#state", "IDLE")


def drawing(stage: Stage, hands: Hands) -> None:
    car = stage.car
    hands.touch("touchStart", (car.x - 4, car.y - 4))
    hands.touch("touchMove", (car.x1 + 4, car.y1 + 4))


def proposed(stage: Stage, hands: Hands) -> None:
    hands.tap(stage.car.cx, stage.car.cy)
    hands.wait_mode("proposed")


def steered(stage: Stage, hands: Hands) -> None:
    followed()(stage, hands)
    stage.tell_gimbal(SteeringState(Controller.RUNNING, True, "following", angles=ANGLES))
    hands.wait_text("#steering-text", "FOLLOWING")


def control_lost(stage: Stage, hands: Hands) -> None:
    followed()(stage, hands)
    reason = "another component (1/190) has taken the gimbal"
    stage.tell_gimbal(SteeringState(Controller.RUNNING, False, "control lost", reason, angles=ANGLES))
    hands.wait_text("#steering-text", "CONTROL LOST")


def bridge_silent(stage: Stage, hands: Hands) -> None:
    steered(stage, hands)
    stage.tell_gimbal(SteeringState(Controller.RUNNING, True, "following", silent=Link.BRIDGE, silent_s=3.2))
    hands.wait_text("#banners", "BRIDGE")


def lost_with_gimbal(stage: Stage, hands: Hands) -> None:
    car = stage.car
    # The car has driven on since it was lost, so the page shows its last box behind it.
    stage.seen = Box(car.x - 176, car.y + 48, car.width, car.height)
    steered(stage, hands)
    followed(TrackState.LOST, age_s=4.2, reason="the network does not see the target")(stage, hands)
    stage.tell_gimbal(SteeringState(Controller.RUNNING, True, "holding", angles=ANGLES))
    hands.wait_text("#steering-text", "HOLDING")


def offered(stage: Stage, hands: Hands) -> None:
    """Bring the page into the state with a lost target and a box where it may be."""
    lost_with_gimbal(stage, hands)
    stage.offers = True
    hands.wait_text("#choice-text", "Is this the lost target?")


def found(stage: Stage, hands: Hands) -> None:
    followed(TrackState.LOST, age_s=4.2)(stage, hands)
    hands.wait_text("#banners", "LOST")
    stage.state = TrackState.TRACKING
    hands.wait_text("#banners", "SEEN AGAIN")


def camera_stopped(stage: Stage, hands: Hands) -> None:
    followed()(stage, hands)
    stage.runs = False
    hands.wait_text("#banners", "CAMERA STOPPED 2 s")


def drawer_and_two(stage: Stage, hands: Hands) -> None:
    followed(has_twin=True)(stage, hands)
    hands.wait_text("#targets", "1 TRACKING")
    hands.page.click("#more")
    hands.page.click("#numbers summary")
    hands.page.wait_for_timeout(300)


def plots_in_sun(stage: Stage, hands: Hands) -> None:
    followed(TrackState.COASTING, age_s=1.4)(stage, hands)
    hands.page.click("#more")
    hands.page.click("#sun")
    hands.page.click("#plots-button")
    hands.page.click("#more")
    hands.page.wait_for_timeout(3000)


def help_read(stage: Stage, hands: Hands) -> None:
    followed()(stage, hands)
    hands.page.click("#more")
    hands.page.click("#help-button")


def place(stage: Stage, hands: Hands) -> None:
    """Show positions of the target on the map, while following waits for a more accurate position."""
    followed()(stage, hands)
    hands.page.click("#more")
    assert stage.sink is not None
    for i in range(40):
        stage.sink(_position(30.0 + 0.8 * i, 40.0 + 10.0 * math.sin(i / 6)))
    waits = "the position is uncertain by 6.2 m, but at most 5 m is allowed: fly closer"
    waits += " or higher, or set follow_accuracy"
    stage.sink(FollowState(True, True, False, waits))


def _position(east: float, north: float) -> PositionReport:
    spread = np.diag([4.0, 9.0, 0.04, 0.04])
    return PositionReport(
        1,
        target_id=1,
        selection=1,
        state=TrackState.TRACKING,
        valid=True,
        latitude=47.4,
        longitude=8.55,
        altitude=431.0,
        x=east,
        y=north,
        velocity_x=1.4,
        velocity_y=0.2,
        covariance=tuple(map(float, spread.ravel())),
        range=math.hypot(east, north, 30.0),
        height_source=HeightSource.HOME,
        camera_x=0.0,
        camera_y=0.0,
        camera_z=30.0,
    )


STATES: dict[str, Do] = {
    "1-idle": idle,
    "2-drawing": drawing,
    "3-proposed": proposed,
    "4-acquiring": followed(
        TrackState.ACQUIRING, presence=0.62, reason="weak selection: draw again, closer around it"
    ),
    "5-steered": steered,
    "6-coasting": followed(TrackState.COASTING, age_s=1.4, reason="the network does not see the target"),
    "7-lost": lost_with_gimbal,
    "7b-offered": offered,
    "8-found": found,
    "9-camera-stopped": camera_stopped,
    "10-control-lost": control_lost,
    "11-two-drawer": drawer_and_two,
    "12-plots-sun": plots_in_sun,
    "13-bridge-silent": bridge_silent,
    "14-help": help_read,
    "15-place": place,
}


# The pictures of the documentation: file, state, size of the page, and width of the written picture, px.
DOCUMENTATION = (
    ("page-steered.webp", "5-steered", (1440, 900), 1200),
    ("page-drawing.webp", "2-drawing", (360, 640), 360),
    ("page-lost.webp", "7b-offered", (640, 360), 800),
)
DOC_QUALITY = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the pictures")
    parser.add_argument("--only", nargs="*", default=[], metavar="STATE", help="only states that begin so")
    parser.add_argument(
        "--docs", type=Path, metavar="FOLDER", help="write the documentation's pictures there too"
    )
    parser.add_argument("--sizes", nargs="*", default=[], metavar="WxH", help="only these sizes")


def run(args: argparse.Namespace) -> int:
    args.out.mkdir(parents=True, exist_ok=True)
    picture, car, twin = _clip()
    states = {
        name: do
        for name, do in STATES.items()
        if not args.only or any(name.startswith(one) for one in args.only)
    }
    sizes = [size for size in SIZES if not args.sizes or f"{size[0]}x{size[1]}" in args.sizes]
    with chromium() as browser:
        for width, height in sizes:
            made = []
            for name, do in states.items():
                file = args.out / f"{name}-{width}x{height}.png"
                _take(browser, (width, height), Stage(picture, car, twin), do, file)
                made.append(file)
                print(file)
            _sheet(made, args.out / f"{width}x{height}.png")
    if args.docs is not None:
        for name, state, (width, height), shown_px in DOCUMENTATION:
            shown = cv2.imread(str(args.out / f"{state}-{width}x{height}.png"))
            if shown is None:
                raise InputError(f"--docs needs the state {state} at {width}x{height}; leave out --only")
            size = (shown_px, round(shown_px * shown.shape[0] / shown.shape[1]))
            small = cv2.resize(shown, size, interpolation=cv2.INTER_AREA)
            cv2.imwrite(str(args.docs / name), small, [cv2.IMWRITE_WEBP_QUALITY, DOC_QUALITY])
    return 0


def _clip() -> tuple[np.ndarray, Box, Box]:
    """Return one frame of the demo's clip at the size `IMAGE`, and the boxes of both cars in it, px."""
    frame = next(iter(open_source(CLIP / "video.mp4").frames(CLIP_FRAME)))
    row = np.loadtxt(CLIP / "boxes.csv", delimiter=",", skiprows=1, usecols=(1, 2, 3, 4))[CLIP_FRAME]
    by = IMAGE[0] / frame.bgr.shape[1]
    large = np.asarray(cv2.resize(frame.bgr, IMAGE, interpolation=cv2.INTER_CUBIC), np.uint8)
    return large, Box(*(by * row)), Box(*(by * v for v in (216.0, 292.0, 62.0, 52.0)))


def _take(browser: Any, size: tuple[int, int], stage: Stage, do: Do, file: Path) -> None:
    width, height = size
    is_small = min(size) < 500
    context = browser.new_context(
        viewport={"width": width, "height": height},
        has_touch=True,
        is_mobile=is_small,
        device_scale_factor=2 if is_small else 1,
    )
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.on("pageerror", lambda error: print(f"{file.name}: {error}"))
    page.on("console", lambda line: print(f"{file.name}: {line.text}"))
    try:
        with serving(OperatorServer(Settings(port=0), stage, stage)) as server:
            page.goto(server.url)
            hands = Hands(page, IMAGE)
            hands.see()
            do(stage, hands)
            slow = page.locator(SLOW_LINK)
            for attempt in range(MAX_ATTEMPTS):
                page.wait_for_timeout(500)
                # On a busy computer the link is slow for a moment, also because of a screenshot.
                if not slow.count() or attempt == MAX_ATTEMPTS - 1:
                    page.screenshot(path=file)
                    if not slow.count():
                        break
            stage.close()
    finally:
        context.close()


def _sheet(files: list[Path], file: Path) -> None:
    """Write all screenshots of one size into one picture, each at half its size."""
    pictures = [np.asarray(cv2.imread(str(one))) for one in files]
    height, width = (side // 2 for side in pictures[0].shape[:2])
    small = [cv2.resize(one, (width, height), interpolation=cv2.INTER_AREA) for one in pictures]
    small += [np.zeros_like(small[0])] * (-len(small) % COLUMNS)
    rows = [np.hstack(small[i : i + COLUMNS]) for i in range(0, len(small), COLUMNS)]
    cv2.imwrite(str(file), np.vstack(rows))
