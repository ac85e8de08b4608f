"""Evaluates a tracker on scenes in which the target disappears: presence decisions and reacquisition.

Uses scenes with fixed seeds and a first box jittered as in `efftam eval --repeats`. A tracker *claims* the
target in a frame when its box is measured and its state is TRACKING (or ACQUIRING since the selection):
unconfirmed candidates are not claims.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.tracker import TargetTracker
from efftam_ros.core.types import Frame, Image, Prompt, TrackState
from efftam_ros.tools.common.terminal import Cell, print_table, progress_bar
from efftam_workshop.eval.command import jittered
from training.material import Backdrop, Sprite
from training.scene_truth import BACK_SHARE, PRESENT_SHARE, Disappearance, Truth
from training.scenes import Scene, render_scene

SEEDS = tuple(range(1000, 1024))
REGAIN_S = 0.5
HIT_IOU = 0.5
SMALL_PX, SMALL_HIT_IOU = 16.0, 0.3  # an error of one px per edge costs a small box half of its overlap
WRONG_IOU = 0.1
WRONG_FRAMES = 3
BEFORE_FRAMES = 5


class Claim(NamedTuple):
    """A tracker's result for a frame: its box in px or None, and whether it claims the target."""

    box: Box | None
    present: bool


class Follower(Protocol):
    """A tracker under evaluation. ``first`` is given with the first frame of a scene and re-initialises
    it."""

    def __call__(self, bgr: NDArray[np.uint8], stamp_ns: int, first: Box | None) -> Claim: ...


class TrackerFollower:
    """The package's tracker as `Follower`."""

    def __init__(self, tracker: TargetTracker) -> None:
        self._tracker = tracker
        self._selected = False

    def __call__(self, bgr: NDArray[np.uint8], stamp_ns: int, first: Box | None) -> Claim:
        prompt = None if first is None else Prompt(box=first)
        track = self._tracker.step(Frame(Image.from_array(bgr), stamp_ns), prompt)
        # ACQUIRING follows a selection first, and an unconfirmed return later.
        self._selected = first is not None or (self._selected and track.state is TrackState.ACQUIRING)
        confirmed = track.state is TrackState.TRACKING or self._selected
        return Claim(track.box, confirmed and track.measured)


@dataclass(frozen=True)
class Return:
    """Result of one disappearance.

    Attributes:
        lost_before: No claim on the target in the last 5 frames that showed at least half of it, so the
            return is not credited.
        regained: Within 0.5 s of the return a claim with IoU of at least 0.5 with the visible part (0.3 if
            that is smaller than 16 px), and not lost before.
        regained_after_s: Time to that claim, NaN without one.
        wrong: Between the disappearance and 0.5 s after the return, at least 3 successive claims overlapped
            the target's outline (hidden or not) by less than 0.1.
        alike: The claimed box was on the look-alike.
    """

    seed: int
    kind: str
    hidden_s: float
    lost_before: bool
    regained: bool
    regained_after_s: float
    wrong: bool
    alike: bool


@dataclass(frozen=True)
class Verdict:
    """Result of one scene.

    Claims are counted against presence (present: at least 0.3 of the target visible; absent: nothing visible;
    other frames are not counted). Also the returns, and the mean overlap of the boxes with the visible part
    over present frames after the first (no box: 0).
    """

    seed: int
    present: int
    claimed_present: int
    absent: int
    claimed_absent: int
    ao: float
    returns: tuple[Return, ...]


@dataclass(frozen=True)
class Judgement:
    """Results of all scenes. Shares 0..1; NaN where nothing can be counted."""

    verdicts: tuple[Verdict, ...]

    @property
    def returns(self) -> list[Return]:
        return [r for verdict in self.verdicts for r in verdict.returns]

    @property
    def sensitivity(self) -> float:
        """Share of present frames that are claimed, over all scenes."""
        return _share(sum(v.claimed_present for v in self.verdicts), sum(v.present for v in self.verdicts))

    @property
    def specificity(self) -> float:
        """Share of absent frames that are not claimed, over all scenes."""
        return 1 - _share(sum(v.claimed_absent for v in self.verdicts), sum(v.absent for v in self.verdicts))

    @property
    def balanced_accuracy(self) -> float:
        return (self.sensitivity + self.specificity) / 2

    @property
    def regained(self) -> float:
        return _share(sum(r.regained for r in self.returns), len(self.returns))

    @property
    def wrong(self) -> float:
        return _share(sum(r.wrong for r in self.returns), len(self.returns))

    @property
    def lost_before(self) -> float:
        return _share(sum(r.lost_before for r in self.returns), len(self.returns))

    @property
    def ao(self) -> float:
        """Average overlap, mean over the scenes."""
        return float(np.mean([v.ao for v in self.verdicts])) if self.verdicts else math.nan

    def figures(self) -> dict[str, float]:
        names = ("balanced_accuracy", "sensitivity", "specificity", "regained", "wrong", "lost_before", "ao")
        return {name: getattr(self, name) for name in names}

    def record(self) -> dict[str, Any]:
        """Record for a JSON file; unknown numbers are null."""
        figures = {name: _or_none(value) for name, value in self.figures().items()}
        verdicts = [asdict(verdict) for verdict in self.verdicts]
        for verdict in verdicts:
            for one in verdict["returns"]:
                one["regained_after_s"] = _or_none(one["regained_after_s"])
        return {"scenes": len(self.verdicts), "returns": len(self.returns), **figures, "verdicts": verdicts}

    def rows(self) -> list[list[Cell]]:
        """One row per scene under `HEADERS`, the last one for all scenes."""
        rows: list[list[Cell]] = [
            [
                str(v.seed),
                " + ".join(f"{r.kind} {r.hidden_s:.1f} s" for r in v.returns),
                _share(v.claimed_present, v.present),
                1 - _share(v.claimed_absent, v.absent),
                " + ".join(_word(r) for r in v.returns),
                v.ao,
            ]
            for v in self.verdicts
        ]
        summary = f"regained {self.regained:.0%}, wrong {self.wrong:.0%}, lost before {self.lost_before:.0%}"
        rows.append(
            ["all", f"{len(self.returns)} returns", self.sensitivity, self.specificity, summary, self.ao]
        )
        return rows

    def print(self, title: str = "") -> None:
        print_table(HEADERS, self.rows(), title=title)
        print(f"balanced accuracy of present/absent: {self.balanced_accuracy:.3f}")


HEADERS = ("seed", "disappearances", "present claimed", "absent not claimed", "returns", "AO")


def _word(one: Return) -> str:
    words = "lost before" if one.lost_before else "regained" if one.regained else "missed"
    wrong = ", look-alike taken" if one.alike else ", wrong object" if one.wrong else ""
    return words + wrong


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def judge(
    follower: Follower,
    sprites: Sequence[Sprite],
    backdrops: Sequence[Backdrop],
    seeds: Iterable[int] = SEEDS,
    quiet: bool = False,
) -> Judgement:
    """Run a tracker over the scenes of some seeds, with a progress bar."""
    seeds = list(seeds)
    verdicts = []
    with progress_bar(len(seeds), "scenes", unit="scene", quiet=quiet) as bar:
        for seed in seeds:
            verdicts.append(verdict_of(follower, render_scene(sprites, backdrops, seed)))
            bar.update()
    return Judgement(tuple(verdicts))


def verdict_of(follower: Follower, scene: Scene) -> Verdict:
    """Run a tracker over one scene."""
    start = scene.truth[0].box
    if start is None:
        raise ValueError(f"scene {scene.seed} does not show its target on the first frame")
    first: Box | None = jittered(start, f"scene {scene.seed}", 1)
    claims = []
    for frame in scene:
        claims.append(follower(frame.bgr, frame.stamp_ns, first))
        first = None
    return score(scene.seed, scene.truth, scene.disappearances, scene.fps, claims, scene.look_alike)


def score(
    seed: int,
    truth: Sequence[Truth],
    disappearances: Sequence[Disappearance],
    fps: float,
    claims: Sequence[Claim],
    look_alike: int | None = None,
    regain_s: float = REGAIN_S,
) -> Verdict:
    """Score the claims of one scene, one per frame.

    ``regain_s``: time within which a tracker has to claim a target that has returned. Raises ValueError when
    the number of claims differs.
    """
    if len(claims) != len(truth):
        raise ValueError(f"{len(claims)} claims for {len(truth)} frames")
    # The first frame is the selection itself.
    present = [i for i in range(1, len(truth)) if truth[i].share >= PRESENT_SHARE]
    absent = [i for i, t in enumerate(truth) if t.share == 0]
    overlaps = [_overlap(claims[i].box, truth[i].box) for i in present]
    return Verdict(
        seed,
        len(present),
        sum(claims[i].present for i in present),
        len(absent),
        sum(claims[i].present for i in absent),
        float(np.mean(overlaps)),
        tuple(_return(seed, truth, one, fps, claims, look_alike, regain_s) for one in disappearances),
    )


def _return(
    seed: int,
    truth: Sequence[Truth],
    one: Disappearance,
    fps: float,
    claims: Sequence[Claim],
    look_alike: int | None,
    regain_s: float,
) -> Return:
    end = min(one.back + round(regain_s * fps), len(truth) - 1)
    seen = [i for i in range(one.first) if truth[i].share >= BACK_SHARE]
    lost_before = not any(_hits(claims[i], truth[i]) for i in seen[-BEFORE_FRAMES:])
    hit = next((i for i in range(one.back, end + 1) if _hits(claims[i], truth[i])), None)
    span = range(seen[-1] + 1, end + 1)
    missing = [claims[i].present and _overlap(claims[i].box, truth[i].outline) < WRONG_IOU for i in span]
    wrong = [i for i, run in zip(span, _runs(missing), strict=True) if run >= WRONG_FRAMES]
    alike = look_alike is not None and any(
        _overlap(claims[i].box, truth[i].others[look_alike]) >= SMALL_HIT_IOU for i in wrong
    )
    return Return(
        seed,
        one.kind,
        (one.last - one.first + 1) / fps,
        lost_before,
        hit is not None and not lost_before,
        math.nan if hit is None else (hit - one.back) / fps,
        bool(wrong),
        alike,
    )


def _hits(claim: Claim, truth: Truth) -> bool:
    if truth.box is None or not claim.present:
        return False
    least = SMALL_HIT_IOU if truth.box.size < SMALL_PX else HIT_IOU
    return _overlap(claim.box, truth.box) >= least


def _overlap(claimed: Box | None, true: Box | None) -> float:
    return 0.0 if claimed is None or true is None else iou(claimed, true)


def _runs(flags: Sequence[bool]) -> list[int]:
    """Length of the run of true flags that ends at each index."""
    runs = []
    count = 0
    for flag in flags:
        count = count + 1 if flag else 0
        runs.append(count)
    return runs
