"""What is remembered after what: the same answers, whatever happened in an order that nobody planned.

No answer is written down here. Each property holds two runs against each other that must not differ: one with
a history and one without it, one with a refused message and one without it, one whose stamps went far back
and one whose stamps went back a little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.scripted_looks import vector
from support.scripted_pipeline import ScriptedPipeline
from support.scripted_target import candidates

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.reasons import Reason
from efftam_ros.core.targets import Step, TargetSet
from efftam_ros.core.types import CameraMotion, Candidates, Frame, Image, PipelineSpec, Prompt
from efftam_ros.core.types import TrackState as State
from efftam_ros.runtime.opening import policy_of

SECOND = 1_000_000_000
PERIOD_NS = SECOND // 10
SPEC = PipelineSpec(name="scripted", image_side=192, default_view="window")
PICTURES = {
    size: Image.from_array(np.zeros((size[1], size[0], 3), np.uint8)) for size in [(640, 480), (320, 240)]
}
UNUSABLE = Image(np.zeros((3, 3), np.uint8), 640, 480, "bgr8")
# They do not commute, so that a wrong order of two motions shows.
ROLL = np.array([[0.995, -0.1, 40.0], [0.1, 0.995, -25.0], [0.0, 0.0, 1.0]])
ZOOM = np.array([[1.1, 0.0, -30.0], [0.0, 1.1, -25.0], [0.0, 0.0, 1.0]])
STEPS = (ROLL, ZOOM, np.linalg.inv(ROLL), np.linalg.inv(ZOOM))
QUICK = {"lost_after": 0.35, "search_windows": 3}


@dataclass
class Scene:
    """What there is to see. ``pose``: from the ground to the image, px; the first target stands at (320, 240)
    on the ground, the second one, its twin, 120 px beside it."""

    now_ns: int = SECOND
    size: tuple[int, int] = (640, 480)
    pose: NDArray[np.float64] = field(default_factory=lambda: np.eye(3))
    pans: int = 0
    is_hidden: bool = False
    is_alone: bool = False
    """Whether there is no second one."""
    is_swapped: bool = False
    """Whether another individual stands in the first one's place."""
    is_finite: bool = True
    is_motion_known: bool = True

    def place(self, number: int = 0) -> Box:
        x, y, _ = self.pose @ (320.0 + 120 * number, 240.0, 1.0)
        scale = math.sqrt(abs(np.linalg.det(self.pose[:2, :2])))
        return Box.from_centre(float(x), float(y), 40 * scale, 30 * scale)

    def candidates(self, view: View) -> Candidates:
        """The visible targets whose centre is in the view, and a part of the first."""
        width, height = view.extent
        places = [self.place(i) for i in range(self.is_hidden, 2 - self.is_alone)]
        seen = [p for p in places if view.x <= p.cx < view.x + width and view.y <= p.cy < view.y + height]
        shown = [*seen, *(p.moved(3, 5) for p in seen[:1]), None, None, None][:3]
        ious = [0.9, 0.8, 0.6] if self.is_finite else [math.nan] * 3
        return candidates(*shown, ious=ious, presence_logit=2.5 if seen else -6.0)


class Camera:
    """Knows the pose; measures, as the real one does, from the image that it was shown before."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.reset()

    def reset(self) -> None:
        self._before = None

    def another(self) -> Camera:
        return Camera(self._scene)

    def prefetch(self, image: Image) -> None: ...

    def estimate(self, image: Image, stamp_ns: int, targets: Sequence[Box]) -> CameraMotion:
        before, self._before = self._before, self.keep(())
        if before is None or before[0] != self._scene.size or not self._scene.is_motion_known:
            return CameraMotion(None, "not known")
        return CameraMotion(self._scene.pose @ np.linalg.inv(before[1]))

    def keep(self, targets: Sequence[Box]) -> tuple[tuple[int, int], NDArray[np.float64]]:
        return self._scene.size, self._scene.pose

    def since(self, kept) -> CameraMotion:
        if kept is None or kept[0] != self._scene.size:
            return CameraMotion(None, "not known")
        return CameraMotion(self._scene.pose @ np.linalg.inv(kept[1]))


class World:
    """A set of targets in a scene. ``answers``: to each image, as text that two runs can be compared by."""

    def __init__(self, scene: Scene | None = None, **config) -> None:
        self.scene = scene or Scene()
        self.pipeline = ScriptedPipeline(lambda _, view: self.scene.candidates(view), SPEC, max_targets=2)
        self.targets = TargetSet(
            self.pipeline,
            TrackerConfig(**{**QUICK, **config}),
            Camera(self.scene),
            describe=self._describe,
            make_policy=policy_of(config.get("policy", "default")),
        )
        self.answers: list[object] = []
        self.zero_ns = self.used_ns = 0
        self.first_ns = self.scene.now_ns

    def _describe(self, image: Image, boxes: Sequence[Box]) -> NDArray[np.float32]:
        def cosine(box: Box) -> float:
            is_first = math.dist((box.cx, box.cy), (self.scene.place().cx, self.scene.place().cy)) < 30
            return 0.97 if is_first and not self.scene.is_swapped else 0.2

        return np.stack([vector(cosine(box)) for box in boxes])

    def look(self, prompts=None, ids=None, image: Image | None = None) -> list[Step]:
        """The targets' answers to the image of this moment."""
        before = len(self.pipeline.calls)
        frame = Frame(image or PICTURES[self.scene.size], self.scene.now_ns)
        told = []
        steps = self.targets.step(
            frame, prompts or {}, ids=ids, publish=lambda step: told.append(self._told(step))
        )
        self.targets.remember()
        calls = [
            (call.name, call.arguments[1:] if call.name in ("encode", "search") else call.arguments)
            for call in self.pipeline.calls[before:]
            if call.name not in ("decode", "mask")
        ]
        self.answers.append((told, calls))
        if image is None:
            self.used_ns = self.scene.now_ns
        self.first_ns = min(self.first_ns, self.scene.now_ns)
        return steps

    def _told(self, step: Step) -> str:
        track = step.track
        mask, motion = step.tracker.mask(), track.motion
        # The mask that is shown belongs to the box that was measured in this very image, or there is none.
        assert (mask is not None) == track.measured or not track.processed
        motion = motion and replace(motion, stamp_ns=motion.stamp_ns - self.zero_ns)
        since_ns = track.stamp_ns - self.zero_ns
        reason = Reason(track.reason.code, track.reason.replace(str(track.stamp_ns), str(since_ns)))
        told = replace(track, stamp_ns=since_ns, motion=motion, reason=reason, stage_seconds={})
        return f"{step.target_id} {told}" + (
            "" if mask is None else f" {mask.any(axis=1).argmax(), mask.any(axis=0).argmax()}"
        )

    # What may happen

    def wait(self, periods: float = 1.0) -> None:
        self.scene.now_ns += round(periods * PERIOD_NS)

    def see(self) -> None:
        self.wait()
        self.scene.is_hidden = self.scene.is_swapped = False
        self.look()

    def miss(self) -> None:
        self.wait()
        self.scene.is_hidden = True
        self.look()

    def swap(self) -> None:
        self.wait()
        self.scene.is_swapped = True
        self.look()

    def pan(self) -> None:
        self.wait()
        self.scene.pose = STEPS[self.scene.pans % 4] @ self.scene.pose
        self.scene.pans += 1
        self.look()

    def jerk(self) -> None:
        self.scene.is_motion_known = False
        self.pan()
        self.scene.is_motion_known = True

    def break_down(self) -> None:
        self.wait()
        self.scene.is_finite = False
        self.look()
        self.scene.is_finite = True

    def gap(self) -> None:
        self.wait(50)
        self.look()

    def go_back(self) -> None:
        self.wait(-5)
        self.look()

    def resize(self) -> None:
        self.wait()
        other = (320, 240) if self.scene.size == (640, 480) else (640, 480)
        self.scene.pose = np.diag([other[0] / self.scene.size[0]] * 2 + [1.0]) @ self.scene.pose
        self.scene.size = other
        self.look()

    def unusable(self) -> None:
        self.wait()
        self.look(image=UNUSABLE)

    def is_in_image(self) -> bool:
        width, height = self.scene.size
        return not self.scene.place().clipped(width, height).is_empty

    def stand_before_it(self) -> None:
        self.scene.is_hidden = self.scene.is_swapped = False
        self.scene.pose = np.diag([self.scene.size[0] / 640] * 2 + [1.0])

    def select(self) -> None:
        """The first target, in the middle of the image."""
        self.wait()
        self.stand_before_it()
        self.look({0: Prompt(box=self.scene.place())})

    def second(self) -> None:
        """The second target comes or goes."""
        self.wait()
        if 1 in self.targets.ids:
            self.targets.remove(1)
        elif self.targets.ids:
            with suppress(InputError):  # where it is outside the image
                self.look({1: Prompt(box=self.scene.place(1))})

    # What is refused, or changes nothing

    def refused(self) -> None:
        before, pose = self.targets.ids, self.scene.pose
        self.wait(0.25)
        self.scene.pose = ROLL @ pose  # the camera turns there and back
        with pytest.raises(InputError):
            self.look({0: Prompt(box=Box(-50.0, -50.0, 20.0, 20.0))}, ids=())
        self.scene.is_finite = False
        with pytest.raises(InputError):
            self.look({0: Prompt(box=Box(100.0, 100.0, 50.0, 50.0))}, ids=())
        self.scene.is_finite, self.scene.pose = True, pose
        self.wait(-0.25)
        assert self.targets.ids == before

    def again(self) -> None:
        """The image of before once more; one that could not be used then may come again."""
        if self.scene.now_ns == self.used_ns:
            assert not any(step.track.processed for step in self.look())
            del self.answers[-1]

    def propose(self) -> None:
        frame = Frame(PICTURES[self.scene.size], self.scene.now_ns)
        self.targets.propose(frame, Prompt(points=((100.0, 100.0),), labels=(1,)))

    def do(self, events: Sequence[tuple[str, int]]) -> list[object]:
        """The answers to these events; ``(name, count)`` each."""
        first = len(self.answers)
        for name, count in events:
            for _ in range(count):
                getattr(self, name)()
        return self.answers[first:]


EVENTS = [
    "see",
    "miss",
    "swap",
    "pan",
    "jerk",
    "break_down",
    "gap",
    "go_back",
    "resize",
    "unusable",
]
IDLE_EVENTS = ["refused", "again", "propose"]


def sequences(names: Sequence[str], most: int = 6):
    return st.lists(st.tuples(st.sampled_from(names), st.integers(1, 7)), max_size=most)


def test_the_scene_is_one_in_which_everything_happens():
    """Without it the properties below would compare nothing."""
    world = World()
    world.select()
    world.do([("see", 5), ("pan", 2), ("miss", 7), ("see", 9), ("swap", 14), ("see", 12)])
    told = [answer for answers, _ in world.answers for answer in answers]
    for word in (
        *map(repr, (State.ACQUIRING, State.TRACKING, State.COASTING, State.LOST)),
        "no longer looks like",
    ):
        assert any(word in one for one in told), word
    assert any(name == "search" for _, calls in world.answers for name, _ in calls)
    assert repr(State.TRACKING) in told[-1]


@settings(max_examples=40)
@given(before=sequences([*EVENTS, "second"]), after=sequences(EVENTS), cleared=st.booleans())
@example(before=[("see", 4), ("miss", 6)], after=[("miss", 7), ("see", 3)], cleared=False)
@example(before=[("see", 9), ("swap", 1)], after=[("see", 3), ("swap", 2)], cleared=False)
def test_a_selection_forgets_all_that_was_before_it(before, after, cleared):
    old = World()
    old.select()
    old.do(before)
    if 1 in old.targets.ids:
        old.targets.remove(1)
    if cleared:
        old.targets.clear()
    new = World(replace(old.scene))
    for world in (old, new):
        world.answers.clear()
        world.select()
    assert old.do(after) == new.do(after)
    assert old.answers == new.answers


@settings(max_examples=40)
@given(
    events=sequences(EVENTS, most=8), refused=st.lists(st.sampled_from(IDLE_EVENTS), min_size=8, max_size=8)
)
def test_what_is_refused_changes_no_later_answer(events, refused):
    """A selection outside the image or on an image that the network fails on, an image that comes twice, a
    proposal."""
    plain, disturbed = World(), World()
    for world in (plain, disturbed):
        world.select()
    for event, between in zip(events, refused, strict=False):
        plain.do([event])
        disturbed.do([event, (between, 1)])
    assert [told for told, _ in plain.answers] == [told for told, _ in disturbed.answers]


@settings(max_examples=40)
@given(before=sequences(EVENTS), after=sequences(EVENTS), far_s=st.integers(10, 100))
@example(before=[("see", 9), ("swap", 4)], after=[("swap", 14)], far_s=100)
@example(before=[("see", 9), ("miss", 1)], after=[("miss", 3), ("see", 9)], far_s=100)
def test_after_stamps_that_go_back_nothing_depends_on_how_far(before, after, far_s):
    """No time of before counts, also once the stamps of before come again; the memory stays."""
    near, far = World(), World()
    for world, back_s in ((near, 3), (far, far_s)):
        world.scene.now_ns = world.first_ns = 10_000 * SECOND  # no stamp is below 0
        world.select()
        world.do(before)
        world.scene.now_ns = world.first_ns - back_s * SECOND
        world.zero_ns = world.scene.now_ns
        world.stand_before_it()
        world.look()
        world.answers.clear()
    assert near.do([("see", 25)]) == far.do([("see", 25)])
    if repr(State.TRACKING) in near.answers[-1][0][0]:  # else the last confirmed stamp is one of before
        assert near.do(after) == far.do(after)


@settings(max_examples=30)
@given(
    before=sequences(["see", "miss", "swap", "break_down", "gap", "go_back", "unusable"], most=4),
    policy=st.sampled_from(["default", "efficienttam"]),
)
@example(before=[("see", 4), ("miss", 7)], policy="efficienttam")
@example(before=[("see", 4), ("miss", 7)], policy="default")
def test_a_target_that_was_found_again_is_looked_for_as_if_it_had_never_been_missed(before, policy):
    """The same windows in the same order, from where it was seen last."""
    looked = []
    for events in (before, []):
        world = World(Scene(is_alone=True), policy=policy)
        world.select()
        world.do([*events, ("see", 25)])
        if repr(State.TRACKING) not in world.answers[-1][0][0]:
            return  # not found again yet
        calls = [call for _, calls in world.do([("miss", 9)]) for call in calls]
        looked.append([(name, given[0]) for name, given in calls if name in ("encode", "search")])
        assert len(looked[-1]) >= 9
    assert looked[0] == looked[1]


CHANGED = {
    "lost_after": 0.8,
    "max_gap": 6.0,
    "acquire_frames": 6,
    "reacquire_frames": 1,
    "presence_threshold": 0.999,
    "memory_quality": 0.95,
    "gate_mahalanobis": 0.5,
    "gate_iou": 0.9,
    "motion_weight": 1.0,
    "search_windows": 2,
}


@settings(max_examples=40)
@given(
    before=sequences(EVENTS, most=3),
    after=sequences(EVENTS),
    names=st.sets(st.sampled_from(sorted(CHANGED)), min_size=1),
    policy=st.sampled_from(["default", "samurai", "efficienttam"]),
)
@example(
    before=[], after=[("see", 4), ("miss", 5), ("see", 2)], names={"presence_threshold"}, policy="default"
)
def test_a_target_under_changed_settings_is_followed_as_if_they_had_always_been_so(
    before, after, names, policy
):
    changed = {name: CHANGED[name] for name in names}
    old = World(policy=policy)
    old.select()
    old.do(before)
    old.targets.reconfigure(TrackerConfig(**{**QUICK, **changed, "policy": policy}))
    new = World(replace(old.scene), policy=policy, **changed)
    for world in (old, new):
        world.answers.clear()
        world.select()
    assert old.do(after) == new.do(after)


@settings(max_examples=40)
@given(
    events=sequences(["pan", "jerk", "gap", "second", "select"], most=8),
    limited=st.lists(st.booleans(), min_size=60),
)
@example(events=[("second", 1), ("pan", 6)], limited=[True, True, False] * 20)
@example(events=[("second", 1), ("pan", 3), ("select", 1), ("pan", 1)], limited=[False] * 60)
def test_the_motion_since_a_targets_own_last_image_is_the_one_that_happened(events, limited):
    """Also where it had no turn in some images: the steps since then, in the order in which they came."""
    world = World()
    world.select()
    shown: dict[int, NDArray[np.float64]] = {0: world.scene.pose}
    look, turns = world.look, iter(limited)

    def watched(prompts=None, **how):
        ids = {0} if not prompts and next(turns, False) else None
        steps = look(prompts, ids=ids)
        for step in steps:
            matrix, before = step.track.camera and step.track.camera.matrix, shown.get(step.target_id)
            if matrix is not None and step.target_id not in (prompts or {}):
                np.testing.assert_allclose(matrix @ before, world.scene.pose, atol=1e-6)
            shown[step.target_id] = world.scene.pose
        return steps

    world.look = watched
    world.do(events)
