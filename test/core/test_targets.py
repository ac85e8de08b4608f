"""Several targets: their ids, the order of their answers, what is refused, what they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from support.scripted_looks import vector
from support.scripted_pipeline import ScriptedPipeline
from support.scripted_target import candidates

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.gallery import Gallery, Others, Rival
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.targets import NEXT_FREE, TargetSet, id_for
from efftam_ros.core.types import CameraMotion, Frame, Image, PipelineSpec, Prompt, TrackState
from simulation.null_pipeline import certain_candidate

PICTURE = np.zeros((400, 800, 3), np.uint8)
PERIOD_NS = 40_000_000
SPEC = PipelineSpec(name="scripted", image_side=512)


def frame(index: int) -> Frame:
    return Frame(Image.from_array(PICTURE), 1_000_000_000 + index * PERIOD_NS)


def place(lane: int) -> Box:
    """Of the target in this lane: they lie side by side, at rest."""
    return Box(20.0 + 90 * lane, 100.0, 40.0, 60.0)


class Shown(ScriptedPipeline):
    """Shows each target what the scene says."""

    def __init__(self, scene: Scene, max_targets: int) -> None:
        self._scene = scene
        super().__init__((), SPEC, max_targets=max_targets)

    def _compute(self, image, frame) -> None:
        self._scene.called("look", frame.target)
        super()._compute(image, frame)

    def _remember(self, chosen) -> None:
        self._scene.called("remember", chosen.frame.target)
        super()._remember(chosen)

    def _scripted(self, index: int, view):
        return self._scene.shown(self.in_target)


class Scene:
    """Targets on a scripted pipeline that shows each of them where it is. ``before``: called with the number
    of a target that is looked at; ``fails``: calls that fail, by name and number."""

    def __init__(
        self,
        max_targets: int = 4,
        camera=None,
        config: TrackerConfig | None = None,
        **sources,
    ) -> None:
        self.before = lambda lane: None
        self.fails: set[tuple[str, int]] = set()
        self.pipeline = Shown(self, max_targets)
        self.targets = TargetSet(self.pipeline, config, camera, **sources)
        self.numbers = {tracker: number for number, tracker in enumerate(reversed(self.targets._free))}
        self.hidden: set[int] = set()
        self.places = {lane: place(lane) for lane in range(max_targets)}
        self.index = -1

    def called(self, name: str, lane: int) -> None:
        if name == "look":
            self.before(lane)
        if (name, lane) in self.fails:
            raise ZeroDivisionError

    def shown(self, lane: int):
        return certain_candidate(Box(0, 0, 0, 0) if lane in self.hidden else self.places[lane])

    def step(self, prompts=None, **how):
        """The answers to the next image."""
        self.index += 1
        steps = self.targets.step(frame(self.index), prompts or {}, **how)
        self.targets.remember()
        return steps

    def seen(self) -> list[int]:
        """The targets that are measured in the next image."""
        seen = [step for step in self.step() if step.track.measured]
        assert {step.track.stamp_ns for step in seen} <= {frame(self.index).stamp_ns}
        return [step.target_id for step in seen]

    def add(self, asked: int = 255) -> int:
        """Select what lies in the next lane."""
        target_id = self.targets.id_for(asked)
        lane = self.numbers[self.targets._free[-1]] if self.targets._free else 0
        self.step({target_id: Prompt(box=place(lane))})
        return target_id


def scene_of(count: int, **kwargs) -> Scene:
    scene = Scene(**kwargs)
    for _ in range(count):
        scene.add()
    return scene


# ---- ids ---------------------------------------------------------------------------------------------------


def test_without_a_target_an_image_has_one_idle_answer():
    told = []
    ((target_id, track, *_),) = told_steps = Scene().step(publish=told.append)
    assert (target_id, track.state, told) == (0, TrackState.IDLE, told_steps)


@pytest.mark.parametrize(
    ("asked", "ids", "steered", "given"),
    [
        *((0, [], None, 0), (7, [], None, 7), (NEXT_FREE, [], None, 0)),
        *((0, [0, 1, 2], 2, 2), (0, [2], None, 2), (5, [0, 1, 2, 5], 0, 5)),  # replaced
        *((NEXT_FREE, [0, 1], 0, 2), (NEXT_FREE, [0, 2], 0, 1), (NEXT_FREE, [1], 1, 2)),  # 0 is the first's
        *(
            (-1, [], None, "0 to 254"),
            (256, [], None, "0 to 254"),
            (0, [0, 2], None, "no target is steered.*0, 2"),
        ),
        *((NEXT_FREE, [0, 1, 2, 5], 0, "4 targets .*max_targets"), (9, [0, 1, 2, 5], 0, "max_targets")),
    ],
)
def test_the_id_that_a_selection_asks_for(asked, ids, steered, given):
    if isinstance(given, int):
        assert id_for(asked, ids, steered, most=4) == given
    else:
        with pytest.raises(InputError, match=given):
            id_for(asked, ids, steered, most=4)


def test_the_first_target_is_steered_by_until_another_is_named_or_it_is_removed():
    scene = scene_of(3)
    assert scene.targets.steered == 0
    scene.targets.steer(1)
    scene.targets.remove(1)
    with pytest.raises(InputError, match="outside"):
        scene.step({2: Prompt(box=Box(900, 9, 5, 5))})
    assert scene.targets.steered is None
    scene.step({2: Prompt(box=place(2))})
    assert scene.targets.steered == 2
    scene.targets.clear()
    assert (scene.targets.ids, scene.targets.steered) == ([], None)


def test_each_target_is_where_it_was_selected_and_a_removed_ones_place_is_taken_by_the_next():
    scene = scene_of(4)
    assert scene.targets.ids == [0, 1, 2, 3]
    scene.targets.remove(1)
    assert scene.add() == 1
    assert [step.track.box.edges() for step in scene.step()] == [place(lane).edges() for lane in range(4)]


def test_one_target_too_many_is_refused():
    scene = scene_of(4)
    with pytest.raises(InputError, match="max_targets"):
        scene.step({9: Prompt(box=place(5))})
    assert scene.targets.ids == [0, 1, 2, 3]


@pytest.mark.parametrize("call", ["remove", "steer", "tracker"])
def test_a_target_that_is_not_there_is_named_with_those_that_are(call):
    scene = scene_of(2)
    with pytest.raises(InputError, match=r"no target 5; present targets: 0, 1"):
        getattr(scene.targets, call)(5)
    assert (scene.targets.ids, scene.targets.steered) == ([0, 1], 0)


# ---- a step ------------------------------------------------------------------------------------------------


def test_the_target_that_is_steered_by_is_answered_first():
    scene = scene_of(4)
    scene.targets.steer(2)
    assert [step.target_id for step in scene.step()] == [2, 0, 1, 3]


def test_a_targets_mask_is_there_until_the_next_ones_answer_is_computed():
    seen = []

    def answered(step):
        mask, box = step.tracker.mask(), step.track.box
        seen.append((step.target_id, mask[int(box.y), int(box.x)], np.count_nonzero(mask) / box.area))

    scene_of(2).step(publish=answered)
    assert seen == [(0, 255, 1.0), (1, 255, 1.0)]


def test_the_answers_are_there_before_their_image_is_remembered():
    scene, remembered = scene_of(2), []
    scene.pipeline.calls.clear()
    scene.step(publish=lambda step: remembered.append(len(scene.pipeline.calls_of("remember"))))
    assert remembered == [0, 0]
    assert len(scene.pipeline.calls_of("remember")) == 2


def test_the_steered_one_is_answered_before_the_others_are_looked_at_and_those_in_one_call(monkeypatch):
    """One that is missed is looked at again, where its windows show it."""
    scene, story = scene_of(4, config=TrackerConfig(view="window")), []
    scene.hidden = {3}
    scene.step()
    scene.targets.steer(2)
    look = scene.pipeline.look

    def told(image, looks):
        story.append([one.target for one in looks])
        return look(image, looks)

    monkeypatch.setattr(scene.pipeline, "look", told)
    scene.step(publish=lambda step: story.append(f"answer {step.target_id}"))
    assert story == [
        *([2], "answer 2"),
        *([0, 1, 3], "answer 0", "answer 1", [3], "answer 3"),
    ]


@pytest.mark.parametrize("last", [0, 1])
def test_an_error_of_who_gets_an_answer_leaves_a_usable_set(last):
    scene = scene_of(4)

    def publish(step):
        if step.target_id == last:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scene.step(publish=publish)
    assert scene.targets.in_work == [last]
    assert scene.seen() == scene.seen() == [0, 1, 2, 3]
    scene.targets.clear()
    assert not scene.seen()


@pytest.mark.parametrize("wrong", ["look", "remember"])
def test_an_error_of_one_is_raised_in_its_turn_and_costs_the_others_nothing(wrong):
    scene, told = scene_of(4), []
    scene.fails = {(wrong, 2)}
    with pytest.raises(ZeroDivisionError):
        scene.step(publish=lambda step: told.append(step.target_id))
    assert (told, scene.targets.in_work) == (
        ([0, 1], [2]) if wrong == "look" else ([0, 1, 2, 3], [0, 1, 2, 3])
    )
    scene.targets.remove(2)
    scene.fails = set()
    assert scene.seen() == scene.seen() == [0, 1, 3]


def test_a_refused_prompt_is_raised_when_the_others_have_been_answered():
    scene, told = scene_of(2), []
    with pytest.raises(InputError, match="outside the image"):
        scene.step(
            {2: Prompt(box=Box(900, 9, 5, 5)), 3: Prompt()},
            publish=lambda step: told.append(step.target_id),
        )
    assert told == scene.targets.ids == [0, 1]


def test_of_more_targets_than_the_limit_the_steered_one_and_the_others_in_turn_are_processed():
    scene = scene_of(4)
    turns = [[step.target_id for step in scene.step(limit=2)] for _ in range(6)]
    assert turns == [[0, 1], [0, 2], [0, 3]] * 2
    prompts = {1: Prompt(box=place(1))}  # does not count
    assert [step.target_id for step in scene.step(prompts, limit=2)] == [0, 1, 2]


def test_a_target_can_catch_up_alone():
    scene = scene_of(3)
    answers = scene.targets.step(frame(0), {3: Prompt(box=place(3))}, ids=[3])
    assert [step.target_id for step in answers] == [3]
    assert all(not step.track.reason for step in scene.step() if step.target_id != 3)


def test_an_answer_tells_the_time_that_it_took(monkeypatch):
    scene, now_s = scene_of(3), [0.0]
    monkeypatch.setattr("efftam_ros.core.targets.time", SimpleNamespace(perf_counter=lambda: now_s[0]))
    told = []

    def slow(lane: int) -> None:
        now_s[0] += 1.0 + lane

    scene.before = slow

    def answered(step):
        told.append(step.seconds)
        now_s[0] += 100.0  # to publish it

    scene.step(publish=answered)
    assert told == [1.0, 2.5, 2.5]  # the two were looked at together


def test_settings_change_for_all_targets_and_those_to_come():
    scene = scene_of(2)
    scene.targets.reconfigure(TrackerConfig(lost_after=3.0))
    scene.add()
    assert {scene.targets.tracker(one).config.lost_after for one in scene.targets.ids} == {3.0}


# ---- between targets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [Prompt(box=place(1)), Prompt(points=((130.0, 130.0),), labels=(1,))])
def test_an_object_that_is_a_target_already_is_refused_with_its_id(prompt):
    """Also where only the network's answer tells what was meant."""
    scene = scene_of(2)
    scene.places[2] = place(1)
    with pytest.raises(InputError, match=r"target 1 already \(overlap 1.00, at most 0.5\)"):
        scene.step({2: prompt})
    scene.places[0] = place(1)
    with pytest.raises(InputError, match="target 1 already"):
        scene.step({0: Prompt(box=place(1))})
    scene.places[0] = place(0)
    assert scene.targets.ids == scene.seen() == [0, 1]


@pytest.mark.parametrize(
    ("drawn", "away", "surest", "is_refused"),
    [
        *((None, 13, 1, True), (None, 14, 1, False)),  # IoU 0.51 and 0.48
        *((place(2), 0, 0, False), (place(2), 0, 1, True)),  # of what the network sees the surest counts
        *((place(1), 90, 1, True), (place(1).moved(14, 0), 90, 1, False)),  # and what is drawn
    ],
)
def test_what_overlaps_a_target_by_more_than_half_is_that_target(drawn, away, surest, is_refused):
    ious = [0.9 if index == surest else 0.5 for index in range(2)]
    found = candidates(place(3), place(1).moved(away, 0), ious=ious)
    with pytest.raises(InputError, match="target 7 already") if is_refused else nullcontext():
        Others([Rival(7, place(1), Gallery())]).require_free(drawn, found)


def test_an_object_that_is_a_target_already_is_refused_on_an_earlier_image_too():
    """Where it was then counts, not where it is now."""
    scene = scene_of(2)
    begin = scene.index
    for _ in range(30):
        scene.places[1] = scene.places[1].moved(4.0, 2.0)
        scene.step()
    scene.places[2] = place(1).moved(40.0, 20.0)  # of target 1 in the tenth of these images
    with pytest.raises(InputError, match=r"target 1 already \(overlap 1.00, at most 0.5\)"):
        scene.targets.step(frame(begin + 10), {2: Prompt(box=scene.places[2])}, ids=[2])
    assert scene.targets.ids == [0, 1]
    scene.places[2] = scene.places[1]  # where nothing was then
    (step,) = scene.targets.step(frame(begin + 10), {2: Prompt(box=scene.places[2])}, ids=[2])
    assert step.track.measured


def test_a_target_can_be_selected_anew_where_it_is():
    scene = scene_of(2)
    (step, _) = scene.step({1: Prompt(box=place(1)), 0: Prompt(box=place(0))})
    assert step.track.state is TrackState.ACQUIRING


def test_each_hears_where_the_others_are_in_this_very_image_predicted_or_selected_anew():
    scene = scene_of(2)
    for _ in range(12):
        scene.places[1] = scene.places[1].moved(8, 0)
        scene.step()
    (box,) = scene.targets.tracker(0).others.boxes
    assert box.x == pytest.approx(scene.places[1].x, abs=2)
    scene.places[0] = place(3)
    scene.step({0: Prompt(box=place(3))})
    assert [box.x for box in scene.targets.tracker(1).others.boxes] == [place(3).x]


class Crossing:
    """Two targets that look alike pass one another, 12 px an image; to each the network prefers the other.

    ``alike``: the likeness of one to the other.
    """

    def __init__(self, alike: float = 0.6) -> None:
        spec = PipelineSpec(name="scripted", image_side=512)
        self.pipeline = ScriptedPipeline(self.shown, spec, max_targets=2)
        self.targets = TargetSet(self.pipeline, TrackerConfig(view="full"), describe=self.described)
        self.vectors, self.index = [vector(1.0), vector(alike)], 0

    def described(self, image, boxes):
        """The vector of the one that a box shows best."""
        places = [self.true(one, self.index) for one in (0, 1)]
        shown = [int(np.argmax([iou(one, box) for one in places])) for box in boxes]
        return np.stack([self.vectors[one] for one in shown])

    def true(self, lane: int, index: int) -> Box:
        return Box.from_centre(160 + 12 * index if lane == 0 else 640 - 12 * index, 200, 60, 80)

    def shown(self, index: int, view):
        lane = self.pipeline.in_target
        objects = [self.true(one, self.index) for one in (0, 1)]
        quality = [0.6, 0.95] if lane == 0 else [0.95, 0.6]
        if index < 2:
            objects, quality = [objects[lane]], [0.9]
        return candidates(*objects, ious=quality, presence_logit=6.0)

    def run(self, images: int) -> list[dict[int, Box | None]]:
        found = []
        for self.index in range(images):
            prompts = {lane: Prompt(box=self.true(lane, 0)) for lane in (0, 1) if not self.index}
            steps = self.targets.step(frame(self.index), prompts)
            found.append({step.target_id: step.track.box for step in steps if step.track.measured})
            assert not any(
                step.track.reason.code is ReasonCode.OTHER_TARGET for step in steps if step.track.measured
            )
        return found


def test_targets_that_cross_keep_their_ids():
    scene = Crossing()
    for index, boxes in enumerate(scene.run(41)):
        for lane, box in boxes.items():
            assert iou(box, scene.true(lane, index)) > iou(box, scene.true(1 - lane, index)) or index == 20
    assert set(boxes) == {0, 1}


class Neighbours(Crossing):
    """The same, standing: 25 px apart, they cover one another in part."""

    def true(self, lane: int, index: int) -> Box:
        return Box.from_centre(300 + 25 * lane, 200, 60, 80)


def test_what_is_as_like_both_targets_stays_with_the_one_that_is_expected_there():
    for boxes in Neighbours(alike=1.0).run(10):
        assert {lane: box.cx for lane, box in boxes.items()} == {0: 300.0, 1: 325.0}


class Taken(Crossing):
    """The first one is lost, and comes back in the place of the second one, whose target follows it."""

    def true(self, lane: int, index: int) -> Box:
        return place(0) if lane == 0 and index < 40 else place(3)

    def shown(self, index: int, view):
        lane = self.pipeline.in_target
        is_seen = lane == 1 or not 8 <= self.index < 40
        return candidates(self.true(lane, self.index), presence_logit=6.0 if is_seen else -8.0)


def test_a_lost_target_takes_back_what_another_has_taken():
    seen = [set(boxes) for boxes in Taken(alike=0.4).run(43)]
    assert seen[8:41] == [{1}] * 33
    assert seen[41] == {0}  # at the second look, long before the other one is given up


def test_what_comes_back_between_two_that_were_lost_is_one_of_them():
    """The second hears in the same image that the first has it."""

    class OneBack(Neighbours):
        def shown(self, index: int, view):
            if self.index >= 40:
                return candidates(Box.from_centre(312, 200, 60, 80), ious=[0.95], presence_logit=6.0)
            is_seen = self.index < 8
            place = self.true(self.pipeline.in_target, 0)
            return candidates(place, ious=[0.9], presence_logit=6.0 if is_seen else -8.0)

    after = OneBack(alike=1.0).run(60)[39:]
    assert max(len(boxes) for boxes in after) == 1
    assert len(after[0]) < len(after[-1])


def test_a_lost_target_is_not_looked_for_where_another_one_is():
    scene = scene_of(2, config=TrackerConfig(view="window", lost_after=0.0))
    scene.hidden = {1}
    scene.step()
    scene.hidden, scene.places[1] = set(), place(0)
    tracks = [scene.step()[1].track for _ in range(6)]
    assert not any(track.measured or track.hypotheses for track in tracks)
    assert all(
        track.reason.code is ReasonCode.OTHER_TARGET and "target 0" in track.reason for track in tracks
    )


def test_an_image_in_which_targets_overlap_is_not_remembered():
    """A mask that holds both would mix them up for as long as it is kept."""
    scene = Crossing()
    scene.run(41)
    overlapping = [index for index in range(41) if iou(scene.true(0, index), scene.true(1, index)) > 0.25]
    remembered = {call.frame // 2 for call in scene.pipeline.calls if call.name == "remember"}
    assert remembered.isdisjoint(overlapping)
    assert min(remembered) < overlapping[0] < overlapping[-1] < max(remembered)


@pytest.mark.parametrize(
    ("mine", "theirs", "expected", "box", "is_withheld"),
    [
        (0.8, 0.8, place(0), place(1), False),  # far from the other target
        (0.5, 0.9, place(0), place(0), True),  # more like the other one
        (0.9, 0.5, place(0), place(0), False),
        (0.8, 0.85, place(0), place(0), False),  # a tie: it stays with its target
        (0.8, 0.8, place(2), place(0), True),  # expected elsewhere
        (0.9, 0.3, place(2), place(0), True),
        (0.8, 0.8, None, place(0), True),  # lost: the other one has it
        (0.8, 0.8, None, place(0).moved(21, 0), True),  # IoU 0.31
        (0.8, 0.8, None, place(0).moved(22, 0), False),  # 0.29
        (0.9, 0.7, None, place(0), False),  # lost, and it was taken
        (math.nan, 0.7, place(0), place(0), False),
        (math.nan, 0.7, None, place(0), True),
    ],
)
def test_a_candidate_belongs_to_the_target_with_the_better_evidence(mine, theirs, expected, box, is_withheld):
    seen = certain_candidate(place(0))
    looks = SimpleNamespace(vector=lambda box: vector(1.0), likeness=lambda box: mine)
    others = Others([Rival(7, box, SimpleNamespace(likeness=lambda vector: theirs))])
    found, holder = others.withheld(seen, looks, expected)
    assert (holder == 7) == (not found.visible) == is_withheld
    assert np.isfinite(seen.boxes).all()


def test_a_target_is_weak_where_there_is_nothing():
    scene = Scene(is_blank=lambda image, box: box == place(1))
    clear, blank = scene.step({one: Prompt(box=place(one)) for one in (0, 1)})
    assert (clear.track.reason.code, blank.track.reason.code) == (ReasonCode.NONE, ReasonCode.BLANK_BOX)


# ---- what they share ---------------------------------------------------------------------------------------


def test_missed_targets_share_the_windows_that_the_others_leave():
    """Of six, two go to the targets that are followed; three share four, one of them more in its turn."""
    scene = scene_of(5, max_targets=8, config=TrackerConfig(view="window", search_windows=6, lost_after=0.0))
    scene.hidden = {1, 2, 4}
    counts = [{s.target_id: len(s.track.windows) for s in scene.step()} for _ in range(8)][2:]
    assert all(sum(count.values()) == 4 and count[0] == count[3] == 0 for count in counts)
    assert {tuple(sorted(count[one] for one in (1, 2, 4))) for count in counts} == {(1, 1, 2)}
    assert [sum(count[one] for count in counts) for one in (1, 2, 4)] == [8, 8, 8]
    assert sum(len(step.track.windows) for step in scene.step(ids=[0, 1, 2])) == 5  # of those in this image
    scene.targets.clear()
    scene.add()
    scene.hidden = set(range(8))
    assert [len(scene.step()[0].track.windows) for _ in range(4)][2:] == [6, 6]  # a single one has all


def test_where_there_are_fewer_windows_than_missed_targets_each_has_one():
    scene = scene_of(4, config=TrackerConfig(view="window", search_windows=2, lost_after=0.0))
    scene.hidden = {1, 2, 3}
    assert [len(step.track.windows) for _ in range(4) for step in scene.step()][8:] == [0, 1, 1, 1] * 2


class Camera:
    """Shifts by 3 px to the right in every image; counts what it is asked, and keeps those made by it."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.excluded: list[int] = []
        self.kept: list[Sequence[Box]] = []
        self.announced: list[Image] = []
        self.resets = 0
        self.made: list[Camera] = []

    def another(self) -> Camera:
        self.made.append(Camera())
        return self.made[-1]

    def prefetch(self, image) -> None:
        self.announced.append(image)

    def estimate(self, image, stamp_ns, targets) -> CameraMotion:
        self.asked.append(stamp_ns)
        self.excluded.append(len(targets))
        matrix = np.eye(3)
        matrix[0, 2] = 3.0
        return CameraMotion(matrix)

    def keep(self, targets) -> int:
        self.kept.append(targets)
        return len(self.asked)

    def since(self, kept) -> CameraMotion:
        return CameraMotion(None, "not known")

    def reset(self) -> None:
        self.resets += 1


def test_the_camera_s_motion_is_estimated_once_per_image_without_any_target():
    camera = Camera()
    scene = scene_of(3, camera=camera)
    answers = scene.step()
    assert len(camera.asked) == len(set(camera.asked)) == 4
    assert camera.excluded[-1] == 3
    for kept in (camera.kept[5], camera.kept[8]):  # of the last target, as it was selected and later
        assert [round(box.x) for box in kept] == [place(lane).x for lane in (2, 0, 1)]
    assert [step.track.camera.matrix[0, 2] for step in answers] == [3.0] * 3


def test_a_target_that_catches_up_has_the_motion_of_its_own_images_and_the_others_theirs():
    camera = Camera()
    scene = scene_of(2, camera=camera)
    for _ in range(8):
        scene.step()
    scene.targets.step(frame(3), {2: Prompt(box=place(2))}, ids=[2])
    kept, own = [], []
    for late, live in ((5, 11), (8, 12), (10, 13)):
        for index, only in ((late, [2]), (live, [0, 1])):
            steps = scene.targets.step(frame(index), ids=only)
            scene.targets.remember()
            for step in steps:
                own.append((step.target_id, step.track.camera.matrix[0, 2]))
                kept.append((step.target_id, step.tracker._search.last_seen.image))
    assert own == [(2, 3.0), (0, 3.0), (1, 3.0)] * 3
    (its,) = camera.made
    assert its.excluded[0] == 2  # where the others are then
    assert its.asked == [frame(index).stamp_ns for index in (3, 5, 8, 10)]
    assert camera.asked == [frame(index).stamp_ns for index in (*range(10), 11, 12, 13)]
    # The place to recognise is that of its own image.
    assert kept[::3] == [(2, 2), (2, 3), (2, 4)]
    # Level again: one estimate for all.
    for index in (14, 15):
        shifts = {step.target_id: step.track.camera.matrix[0, 2] for step in scene.targets.step(frame(index))}
        assert shifts == {0: 3.0, 1: 3.0, 2: 3.0}
    assert its.asked[-1] == frame(14).stamp_ns
    assert camera.asked[-2:] == [frame(14).stamp_ns, frame(15).stamp_ns]


def test_a_new_target_starts_the_camera_s_motion_anew_only_where_it_is_alone():
    camera = Camera()
    scene = scene_of(3, camera=camera)
    assert camera.resets == 1
    scene.targets.clear()
    scene.index -= 1  # on the same image, which is the first one again
    scene.add()
    assert (camera.resets, len(camera.asked)) == (2, 4)


@pytest.mark.parametrize(("count", "announced"), [(3, 1), (0, 0)])
def test_an_image_is_announced_once_to_the_camera_s_motion_where_there_is_a_target(count, announced):
    camera, image = Camera(), frame(0).image
    scene = scene_of(count, camera=camera)
    scene.targets.prefetch(image)
    assert camera.announced == [image] * announced


# ---- proposals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_proposal_changes_no_target_whether_a_lane_is_free_or_not(count):
    scene = scene_of(count)
    scene.index += 1
    scene.targets.step(frame(scene.index))  # of which something is left to compute
    remembered = len(scene.pipeline.calls_of("remember")) + count
    box = scene.targets.propose(frame(scene.index), Prompt(points=((40.0, 130.0),), labels=(1,)))
    assert box is not None
    assert scene.targets.ids == list(range(count))
    assert len(scene.pipeline.calls_of("remember")) == remembered
    assert [step.track.box for step in scene.step() if step.track.box] == [place(k) for k in range(count)]
