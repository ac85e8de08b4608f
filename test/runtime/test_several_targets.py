"""What every pipeline promises to several targets: a memory each, one network, features computed once."""

from __future__ import annotations

import hashlib
import math
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from golden.clip import clip
from runtime.frames import BOX, PROMPTS, clip_image, looked, same, window
from support.gpu_rig import Rig
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Answers, Look, Pipeline, Remembered
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.targets import Step
from efftam_ros.core.types import Frame, Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.device.memory import MemoryLayout
from efftam_ros.runtime.frame_state import TargetFrame
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline
from efftam_ros.runtime.opening import open_targets
from simulation.null_pipeline import NullPipeline, certain_candidate

TARGETS = 4
ONE_MAP = MemoryPlan((23,), (6,), (23,))
MAKERS: dict[str, Callable[[Bundle, int], Pipeline]] = {
    "null": lambda bundle, count: NullPipeline(bundle.spec, count),
    "scripted": lambda bundle, count: ScriptedPipeline(
        lambda frame, view: certain_candidate(BOX), bundle.spec, max_targets=count
    ),
    "onnxruntime-cpu": lambda bundle, count: OrtPipeline(bundle, threads=2, max_targets=count),
    "onnxruntime-cuda": lambda bundle, count: Rig(bundle, max_targets=count).pipeline,
    "tensorrt": lambda bundle, count: Rig(bundle, max_targets=count, tensorrt=True).pipeline,
}
WITH_NETWORK = ("onnxruntime-cpu", "onnxruntime-cuda", "tensorrt")


@pytest.fixture(scope="module", params=MAKERS)
def pipeline(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    pipeline = MAKERS[request.param](default_bundle(), TARGETS)
    yield pipeline
    pipeline.close()


IMAGES = [clip_image(index) for index in range(3)]


def place(target: int) -> Box:
    return BOX.moved(-9.0 * target, 5.0 * target)


def view_of(target: int, index: int) -> View:
    """Targets 0 and 1 are seen in the same one."""
    return window(index, shift=0.0 if target < 2 else -10.0 * target)


def selected(pipeline: Pipeline, *targets: int) -> None:
    """Each is selected in image 0."""
    for target in targets:
        looked(pipeline, IMAGES[0], view_of(target, 0), prompt=Prompt(box=place(target)), target=target)
        pipeline.remember([Remembered(target, 0, 23, True)])


def look_of(target: int, index: int) -> Look:
    return Look(target, (view_of(target, index),), ONE_MAP)


def followed(pipeline: Pipeline, index: int, *targets: int) -> Answers:
    """All are looked at in one call, and remembered."""
    answers = pipeline.look(IMAGES[index], [look_of(target, index) for target in targets])
    for target in targets:
        answers.candidates(target)
    pipeline.remember([Remembered(target, 0, 23, True) for target in targets])
    return answers


@pytest.mark.parametrize("backend", WITH_NETWORK)
def test_every_target_gets_what_it_would_get_alone(backend: str) -> None:
    """However they are looked at in an image, together or one after the other, in which views, after which
    searches and looks that nobody waited for."""
    draw, count = random.Random(3), 3
    together, *alone = (MAKERS[backend](default_bundle(), targets) for targets in (count, *[1] * count))
    side, story = together.spec.image_side, list[str]()
    for step in range(30):
        picture, previous = IMAGES[step % 3], IMAGES[step % 3 - 1]
        views = [
            View.full(picture.width, picture.height, side),
            *(view_of(n, step % 3) for n in (0, 3)),
        ]
        chosen = [draw.choice(views)] * count if draw.random() < 0.4 else draw.choices(views, k=count)
        prompted = draw.randrange(count) if draw.random() < 0.4 else None
        looks = []
        for target in draw.sample(range(count), count):
            plan = draw.choice((ONE_MAP, ONE_MAP, MemoryPlan()))
            if step == 0 or target == prompted:
                prompt = draw.choice((Prompt(box=place(target)), PROMPTS["mask"]))
                looks.append(Look(target, (chosen[target],), prompt=prompt))
            elif draw.random() < 0.2:
                searched = tuple(draw.sample(views, draw.randint(0, 3)))
                looks.append(Look(target, searched, ONE_MAP, is_search=True))
            else:
                looks.append(Look(target, (chosen[target],), plan))
        before = draw.choice(("", "", "given up", "searched", "looked at twice")) if step else ""
        if before == "given up":  # what was launched, and is not waited for
            together.look(previous, [Look(n, (views[1],), ONE_MAP) for n in draw.sample(range(count), 2)])
        elif before == "searched":
            search = Look(draw.randrange(count), (*views[:2],), ONE_MAP, is_search=True)
            together.look(picture, [search]).candidates(search.target)
        elif before:
            together.look(picture, looks[:1]).candidates(looks[0].target)
        # The steered one's look, then all others'; selections each alone.
        cut = 1 if draw.random() < 0.6 else count
        calls = [looks[:cut], looks[cut:]] if step else [[look] for look in looks]
        story.append(f"{step}: {before}, {cut}, {looks}")
        kept: list[Remembered] = []
        for asked in filter(None, calls):
            answers = together.look(picture, asked)
            for look in asked:
                theirs = alone[look.target].look(picture, [replace(look, target=0)])
                wanted, found = theirs.candidates(0), answers.candidates(look.target)
                assert all(map(same, found, wanted)), story
                assert len(found) == len(wanted) == len(look.views)
                remembered = []
                if not look.is_search:
                    choice = draw.randrange(len(found[0]))
                    ours = answers.mask(look.target, choice)
                    assert np.array_equal(ours, theirs.mask(0, choice)), story
                    if step == 0 or draw.random() < 0.9:
                        remembered = [Remembered(look.target, choice, 23, draw.random() < 0.9)]
                alone[look.target].remember([one._replace(target=0) for one in remembered])
                kept += remembered
            if step == 0:
                together.remember(kept)
                kept = []
        together.remember(kept)
    for one in (together, *alone):
        one.close()


@pytest.mark.parametrize("slot", [-1, 24])
def test_a_slot_beyond_a_target_s_own_is_an_error(pipeline: Pipeline, slot: int) -> None:
    looked(pipeline, IMAGES[0], view_of(1, 0), prompt=Prompt(box=place(1)), target=1)
    with pytest.raises(IndexError, match=str(slot)):
        pipeline.remember([Remembered(1, 0, slot, True)])
    with pytest.raises(IndexError, match=str(slot)):
        pipeline.look(IMAGES[1], [Look(1, (view_of(1, 1),), MemoryPlan((slot,), (6,), (0,)))])


def test_one_prompt_is_looked_at_in_a_call_and_remembered_before_the_next(pipeline: Pipeline) -> None:
    looks = [Look(target, (view_of(target, 0),), prompt=Prompt(box=place(target))) for target in (0, 1)]
    with pytest.raises(ValueError, match="2 prompt"):
        pipeline.look(IMAGES[0], looks)
    for look in looks:
        pipeline.look(IMAGES[0], [look]).candidates(look.target)
    with pytest.raises(RuntimeError, match="target 0 has no candidate to store"):
        pipeline.remember([Remembered(target, 0, 23, True) for target in (0, 1)])
    pipeline.remember([Remembered(1, 0, 23, True)])


def test_of_one_view_the_image_is_encoded_once_and_each_image_again() -> None:
    pipeline = OrtPipeline(default_bundle(), threads=1, max_targets=TARGETS)
    selected(pipeline, 0, 1, 2)
    for index in (1, 2):
        first = pipeline.look(IMAGES[index], [look_of(0, index)])
        others = pipeline.look(IMAGES[index], [look_of(1, index), look_of(2, index)])
        encoded = ["image_encoder" in answers.stage_seconds(target) for answers, target in
                   ((first, 0), (others, 1), (others, 2))]  # fmt: skip
        assert encoded == [True, False, True]
    pipeline.close()


def test_on_a_cpu_targets_are_computed_at_once_each_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks of one call, and what is remembered of them."""
    pipeline, meeting = OrtPipeline(default_bundle(), threads=2, max_targets=TARGETS), threading.Barrier(2)
    selected(pipeline, 2, 3)
    for name in ("_attend", "_remember"):
        computed = getattr(pipeline, name)
        monkeypatch.setattr(
            pipeline, name, lambda *given, computed=computed: (meeting.wait(60), computed(*given))
        )
    followed(pipeline, 1, 2, 3)
    pipeline.close()


def test_an_error_of_one_target_is_raised_to_who_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads in (1, 2):
        pipeline = OrtPipeline(default_bundle(), threads=threads, max_targets=TARGETS)
        selected(pipeline, 2, 3)
        condition = pipeline._attend

        def attend(frame: TargetFrame, plan: MemoryPlan, condition=condition) -> None:
            condition(frame, plan)
            if frame.target == 2:
                raise ZeroDivisionError

        monkeypatch.setattr(pipeline, "_attend", attend)
        answers = pipeline.look(IMAGES[1], [look_of(2, 1), look_of(3, 1)])
        with pytest.raises(ZeroDivisionError):
            answers.candidates(2)
        assert answers.candidates(3)[0].is_finite
        pipeline.close()


def panned(number: int, hidden: int) -> Image:
    """Image ``number`` of four targets under a camera that pans: the clip's, moved by 3 px an image."""
    picture = clip()[0][number % 3].copy()
    if 4 <= number < 9:
        x, y, w, h = map(int, corner(hidden).xywh())
        picture[y : y + h, x : x + w] = 90
    return Image.from_array(np.ascontiguousarray(np.roll(picture, 3 * number, axis=1)), "rgb8")


def corner(lane: int) -> Box:
    return Box(BOX.x + 20.0 * (lane % 2), BOX.y + 30.0 * (lane // 2), 16.0, 24.0)


@pytest.mark.parametrize(
    ("backend", "view"),
    [("onnxruntime-cpu", "window"), ("onnxruntime-cpu", "full"), ("tensorrt", "full"), ("tensorrt", "auto")],
)
def test_four_targets_at_once_are_tracked_as_one_after_the_other(
    backend: str, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With camera motion, a target that is lost, and a switch of the steered one."""
    answers = []
    for at_once in (False, True):
        pipeline = MAKERS[backend](default_bundle(), TARGETS)
        if not at_once:
            monkeypatch.setattr(pipeline, "look", partial(one_by_one, pipeline, pipeline.look))
        targets = open_targets(pipeline, TrackerConfig(view=view, lost_after=0.1))
        found = []
        for number in range(12):
            frame = Frame(panned(number, hidden=3), number * 33_000_000)
            prompts = {} if number else {target: Prompt(box=corner(target)) for target in range(TARGETS)}
            if number == 6:
                targets.steer(2)
            targets.step(frame, prompts, publish=partial(note, found))
            targets.remember()
        answers.append(found)
        pipeline.close()
    assert answers[0] == answers[1]
    assert any("LOST" in one for one in answers[0])


class Each:
    """The answers of several calls."""

    def __init__(self, answers: dict[int, Answers]) -> None:
        self._answers = answers

    def __getattr__(self, name: str):
        return lambda target, *given: getattr(self._answers[target], name)(target, *given)


def one_by_one(pipeline: Pipeline, look, image: Image, looks: list[Look]) -> Each:
    """Each look in a call of its own, which is waited for."""
    answers = {}
    for one in looks:
        answers[one.target] = look(image, [one])
        answers[one.target].candidates(one.target)
    return Each(answers)


def note(found: list[str], step: Step) -> None:
    """Add all that is told of a target, and its mask."""
    found.append(repr(replace(step.track, stage_seconds={}, camera=None)))
    if step.track.camera is not None:
        found.append(str(step.track.camera.matrix))
    mask = step.tracker.mask()
    found.append("" if mask is None else hashlib.sha256(mask).hexdigest())


@pytest.mark.parametrize("view", ["full", "window"])
@pytest.mark.parametrize("count", [1, TARGETS])
def test_on_a_gpu_the_steered_one_is_waited_for_and_then_all_others_at_once(count: int, view: str) -> None:
    """Of four pictures side by side with a target in each, in one view or in windows of their own; nothing is
    allocated once they are followed."""
    rig = Rig(default_bundle(), max_targets=count, tensorrt=True)
    targets = open_targets(rig.pipeline, TrackerConfig(view=view, camera_motion="off"))
    picture = Image.from_array(np.tile(clip()[0][0], (2, 2, 1)), "rgb8")
    for number in range(6):
        boxes = [BOX.moved(640.0 * (one % 2), 480.0 * (one // 2)) for one in range(count)]
        prompts = {} if number else {target: Prompt(box=box) for target, box in enumerate(boxes)}
        before, waits = len(rig.gpu.host_waits()), list[int]()
        if number == 2:
            held = len(rig.gpu.allocations()), rig.gpu.driver.functions.held
        steps = targets.step(
            Frame(picture, number * 33_000_000),
            prompts,
            publish=lambda step, waits=waits: waits.append(len(rig.gpu.host_waits())),
        )
        targets.remember()
        assert all(step.track.measured for step in steps)
    assert [after - before for after in waits] == [1, 2, 2, 2][:count]
    assert (len(rig.gpu.allocations()), rig.gpu.driver.functions.held) == held
    rig.pipeline.close()


def test_what_a_target_on_the_cpu_writes_is_its_own() -> None:
    pipeline = OrtPipeline(default_bundle(), threads=1, max_targets=3)
    own = [arrays_of(one) for one in pipeline._targets]
    assert min(map(len, own)) > 30
    for one, other in combinations(own, 2):
        shared = [(a.shape, b.shape) for a, b in product(one, other) if np.shares_memory(a, b)]
        assert shared == []
    pipeline.close()


def arrays_of(thing: object, seen: set[int] | None = None) -> list[np.ndarray]:
    """All arrays that can be reached by attributes and containers."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return []
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return [thing]
    parts: Iterable[object] = ()
    if isinstance(thing, dict):
        parts = thing.values()
    elif isinstance(thing, list | tuple):
        parts = thing
    elif type(thing).__module__.startswith("efftam_ros.runtime"):
        parts = vars(thing).values()
    return [array for part in parts for array in arrays_of(part, seen)]


@pytest.mark.parametrize("tensorrt", [False, True])
def test_on_a_gpu_a_view_that_several_see_is_encoded_once(tensorrt: bool) -> None:
    rig = Rig(default_bundle(), max_targets=TARGETS, tensorrt=tensorrt)
    selected(rig.pipeline, *range(TARGETS))
    for index in (1, 2):
        rig.gpu.mark("image")
        waits = len(rig.gpu.host_waits())
        followed(rig.pipeline, index, *range(TARGETS))
        assert len(rig.gpu.host_waits()) == waits + 1
        if not tensorrt:
            names = [call.name for call in rig.gpu.since("image")]
            assert names.count("image_encoder") == TARGETS - 1
    rig.pipeline.close()
    assert rig.gpu.memory.alive == []


@pytest.mark.parametrize("backend", WITH_NETWORK)
def test_what_a_target_takes_of_memory_is_told(backend: str) -> None:
    pipelines = [MAKERS[backend](default_bundle(), count) for count in (1, TARGETS)]
    told = {pipeline.target_bytes for pipeline in pipelines}
    (ring,) = {24 * 4 * (one.map_size + one.pointer_channels) for one in [MemoryLayout.of(default_bundle())]}
    tables = [default_bundle().graphs[name].outputs for name in ("image_encoder", "mask_decoder")]
    own = 4 * sum(math.prod(tensor.sizes) for table in tables for tensor in table.values())
    assert min(told) >= ring + (own if backend == "onnxruntime-cpu" else 0)
    if backend != "onnxruntime-cpu":
        one, four = (pipeline.device_bytes for pipeline in pipelines)  # type: ignore[attr-defined]
        of_several = pipelines[1].target_bytes
        assert abs(four - one - (TARGETS - 1) * of_several) < of_several // 8
    for pipeline in pipelines:
        pipeline.close()


def allocated_mb() -> float:
    """Resident memory of this process, MB, without pages of files, which the system takes and gives back."""
    (kilobytes,) = re.findall(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(kilobytes) * 1024e-6


@pytest.mark.slow
def test_the_memory_of_four_targets_is_flat() -> None:
    """With camera motion and points, once buffers, filters and memories are full; without a network."""
    targets = open_targets(NullPipeline(default_bundle().spec, TARGETS))
    settled, frames = 3_000, 20_000
    for number in range(frames):
        prompts = {} if number else {target: Prompt(box=corner(target)) for target in range(TARGETS)}
        assert len(targets.step(Frame(IMAGES[number % 3], number * 33_000_000), prompts)) == TARGETS
        targets.remember()
        if number == settled:
            before = allocated_mb()
    assert allocated_mb() - before < 1.0
