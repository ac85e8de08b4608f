"""What every pipeline promises to several targets: a memory each, one network, features computed once."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from golden.clip import clip
from runtime.frames import BOX, PROMPTS, clip_image, same, window
from support.gpu_rig import Rig
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.targets import Step
from efftam_ros.core.types import Candidates, Frame, Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.device.memory import MemoryLayout
from efftam_ros.runtime.frame_state import LanesState
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline
from efftam_ros.runtime.opening import open_targets
from simulation.null_pipeline import NullPipeline, certain_candidate

LANES = 4
ONE_MAP = MemoryPlan((23,), (6,), (23,))
MAKERS: dict[str, Callable[[Bundle, int], Pipeline]] = {
    "null": lambda bundle, lanes: NullPipeline(bundle.spec, lanes),
    "scripted": lambda bundle, lanes: ScriptedPipeline(
        lambda frame, view: certain_candidate(BOX), bundle.spec, lanes=lanes
    ),
    "onnxruntime-cpu": lambda bundle, lanes: OrtPipeline(bundle, threads=1, lanes=lanes),
    "onnxruntime-cuda": lambda bundle, lanes: Rig(bundle, lanes=lanes).pipeline,
    "tensorrt": lambda bundle, lanes: Rig(bundle, lanes=lanes, tensorrt=True).pipeline,
}
WITH_NETWORK = ("onnxruntime-cpu", "onnxruntime-cuda", "tensorrt")


@pytest.fixture(scope="module", params=MAKERS)
def opened(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    pipeline = MAKERS[request.param](default_bundle(), LANES)
    yield pipeline
    pipeline.close()


@pytest.fixture
def lanes(opened: Pipeline) -> list[Pipeline]:
    return [opened.lane(index) for index in range(LANES)]


IMAGES = [clip_image(index) for index in range(3)]


def target(lane: int) -> Box:
    return BOX.moved(-9.0 * lane, 5.0 * lane)


def view_of(lane: int, index: int) -> View:
    """Lanes 0 and 1 look at the same."""
    return window(index, shift=0.0 if lane < 2 else -10.0 * lane)


def visited(pipeline: Pipeline, lane: int, index: int) -> Candidates:
    """A frame of one target: image 0 selects it, and every image is remembered."""
    pipeline.encode(IMAGES[index], view_of(lane, index))
    if index:
        pipeline.attend(ONE_MAP)
    found = pipeline.decode(None if index else Prompt(box=target(lane)))
    pipeline.remember(0, 23, True)
    return found


@pytest.mark.parametrize("backend", WITH_NETWORK)
def test_every_target_gets_what_it_would_get_alone(backend: str) -> None:
    """Whatever comes first in an image, in which view, and whatever else is asked of the lanes."""
    draw, count = random.Random(3), 3
    together, *alone = (MAKERS[backend](default_bundle(), lanes) for lanes in (count, *[1] * count))
    side, story = together.spec.image_side, list[str]()
    for step in range(30):
        picture, previous = IMAGES[step % 3], IMAGES[step % 3 - 1]
        views = [
            View.full(picture.width, picture.height, side),
            *(view_of(n, step % 3) for n in (0, 3)),
        ]
        order = draw.sample(range(count), count)
        chosen = [draw.choice(views)] * count if draw.random() < 0.5 else draw.choices(views, k=count)
        at_once = step > 0 and len(set(chosen)) == 1 and draw.random() < 0.6
        plans = [draw.choice((ONE_MAP, ONE_MAP, MemoryPlan())) for _ in range(count)]
        for lane in order if at_once else ():
            together.lane(lane).encode(picture, chosen[lane])
            together.lane(lane).attend(plans[lane])
        for lane in order:
            ours, theirs = together.lane(lane), alone[lane]
            given = draw.choice((Prompt(box=target(lane)), PROMPTS["mask"]))
            prompt = given if step == 0 or draw.random() < 0.2 else None
            before = draw.choice(("", "", "given up", "searched", "encoded twice")) if step else ""
            story.append(f"{step}, lane {lane}: {before}, {views.index(chosen[lane])}, at once {at_once}")
            if not at_once:
                if before == "given up":  # by any lane: what it would have computed is not there
                    together.lane(draw.randrange(count)).encode(draw.choice((picture, previous)), views[1])
                elif before == "searched":
                    together.lane(draw.randrange(count)).search(picture, views[:2], ONE_MAP)
                elif before:
                    ours.encode(picture, chosen[lane])
                ours.encode(picture, chosen[lane])
                ours.attend(plans[lane]) if prompt is None else None
            theirs.encode(picture, chosen[lane])
            theirs.attend(plans[lane]) if prompt is None else None
            found, wanted = ours.decode(prompt), theirs.decode(prompt)
            assert same(found, wanted), story
            choice, is_present = draw.randrange(len(found)), draw.random() < 0.9
            assert np.array_equal(ours.mask(choice), theirs.mask(choice)), story
            for one in (ours, theirs):
                one.remember(choice, 23, is_present)
    for pipeline in (together, *alone):
        pipeline.close()
    for lane in range(count):
        with pytest.raises(RuntimeError, match="closed"):
            together.lane(lane).mask(0)


def test_a_frame_ends_where_another_target_s_begins(lanes: list[Pipeline]) -> None:
    if lanes[0].has_own_features:  # type: ignore[attr-defined]
        pytest.skip("each lane has a frame of its own")
    visited(lanes[0], 0, 0)
    visited(lanes[1], 1, 0)
    lanes[0].encode(IMAGES[1], view_of(0, 1))
    lanes[0].attend(ONE_MAP)
    lanes[1].encode(IMAGES[1], view_of(2, 1))
    for call in (
        lambda: lanes[0].attend(ONE_MAP),
        lambda: lanes[0].decode(None),
        lambda: lanes[0].remember(0, 1, True),
        lambda: lanes[0].mask(0),
    ):
        with pytest.raises(RuntimeError, match="encode"):
            call()
    lanes[1].attend(ONE_MAP)
    assert lanes[1].decode(None).is_finite


@pytest.mark.parametrize("slot", [-1, 24])
def test_a_slot_beyond_a_target_s_own_is_an_error(lanes: list[Pipeline], slot: int) -> None:
    visited(lanes[1], 1, 0)
    with pytest.raises(IndexError, match=str(slot)):
        lanes[1].remember(0, slot, True)
    with pytest.raises(IndexError, match=str(slot)):
        lanes[1].attend(MemoryPlan((slot,), (6,), (0,)))


@pytest.mark.parametrize("index", [-1, LANES])
def test_a_lane_that_does_not_exist_is_an_error(lanes: list[Pipeline], index: int) -> None:
    with pytest.raises(IndexError, match=str(LANES)):
        lanes[0].lane(index)


def test_of_one_view_the_image_is_encoded_once_and_each_image_again() -> None:
    pipeline = OrtPipeline(default_bundle(), threads=1, lanes=LANES)
    encoded = []
    for index, lane in product(range(3), range(2)):
        visited(pipeline.lane(lane), lane, index)
        encoded.append("image_encoder" in pipeline.lane(lane).stage_seconds)
    assert encoded == [True, False] * 3
    for _ in range(2):  # the lane itself wants it anew
        visited(pipeline.lane(1), 1, 2)
        assert "image_encoder" in pipeline.lane(1).stage_seconds
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
def test_four_targets_at_once_are_tracked_as_one_after_the_other(backend: str, view: str) -> None:
    """With camera motion, a target that is lost, and a switch of the steered one."""
    answers = []
    for at_once in (False, True):
        if backend == "tensorrt":
            pipeline: Pipeline = Rig(default_bundle(), lanes=LANES, tensorrt=True).pipeline
        else:
            pipeline = OrtPipeline(default_bundle(), threads=2, lanes=LANES)
            pipeline.side_by_side = 1 + at_once
        targets = open_targets(pipeline, TrackerConfig(view=view, lost_after=0.1))
        targets._launches &= at_once
        found = []
        for number in range(12):
            frame = Frame(panned(number, hidden=3), number * 33_000_000)
            prompts = {} if number else {lane: (Prompt(box=corner(lane)), False) for lane in range(LANES)}
            if number == 6:
                targets.steer(2)
            targets.step(frame, prompts, answered=partial(note, found))
            targets.commit()
        answers.append(found)
        pipeline.close()
    assert answers[0] == answers[1]
    assert any("LOST" in one for one in answers[0])


def note(found: list[str], step: Step) -> None:
    """Add all that is told of a target, and its mask."""
    found.append(repr(replace(step.track, stage_seconds={}, camera=None)))
    if step.track.camera is not None:
        found.append(str(step.track.camera.matrix))
    mask = step.tracker.mask()
    found.append("" if mask is None else hashlib.sha256(mask).hexdigest())


@pytest.mark.parametrize("count", [1, LANES])
def test_in_the_full_view_the_steered_one_is_waited_for_and_then_all_others_at_once(count: int) -> None:
    """Of four pictures side by side with a target in each."""
    rig = Rig(default_bundle(), lanes=count, tensorrt=True)
    targets = open_targets(rig.pipeline, TrackerConfig(view="full", camera_motion="off"))
    picture = Image.from_array(np.tile(clip()[0][0], (2, 2, 1)), "rgb8")
    for number in range(6):
        boxes = [BOX.moved(640.0 * (lane % 2), 480.0 * (lane // 2)) for lane in range(count)]
        prompts = {} if number else {lane: (Prompt(box=box), False) for lane, box in enumerate(boxes)}
        before, waits = len(rig.gpu.host_waits()), list[int]()
        steps = targets.step(
            Frame(picture, number * 33_000_000),
            prompts,
            answered=lambda step, waits=waits: waits.append(len(rig.gpu.host_waits())),
        )
        targets.commit()
        assert all(step.track.measured for step in steps)
    assert [after - before for after in waits] == [1, 2, 2, 2][:count]
    rig.pipeline.close()


def test_what_a_lane_on_the_cpu_writes_is_its_own() -> None:
    pipeline = OrtPipeline(default_bundle(), threads=1, lanes=3)
    common = set(map(id, arrays_of(pipeline._no_prompt)))
    own = [[one for one in arrays_of(pipeline.lane(lane)) if id(one) not in common] for lane in range(3)]
    assert min(map(len, own)) > 30
    for one, other in combinations(own, 2):
        shared = [(a.shape, b.shape) for a, b in product(one, other) if np.shares_memory(a, b)]
        assert shared == []
    pipeline.close()


def arrays_of(thing: object, seen: set[int] | None = None) -> list[np.ndarray]:
    """All arrays that can be reached by attributes and containers, without other lanes."""
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
    elif type(thing).__module__.startswith("efftam_ros.runtime") and not isinstance(thing, LanesState):
        parts = vars(thing).values()
    return [array for part in parts for array in arrays_of(part, seen)]


@pytest.mark.parametrize("tensorrt", [False, True])
def test_on_a_gpu_targets_with_windows_of_their_own_wait_once_each_and_allocate_nothing(
    tensorrt: bool,
) -> None:
    rig = Rig(default_bundle(), lanes=LANES, tensorrt=tensorrt)
    for index, lane in product(range(2), range(LANES)):
        visited(rig.pipeline.lane(lane), lane, index)
    waits, held = len(rig.gpu.host_waits()), rig.gpu.driver.functions.held
    allocations = len(rig.gpu.allocations())
    rig.gpu.mark("image")
    for lane in range(LANES):
        visited(rig.pipeline.lane(lane), lane, 2)
    assert len(rig.gpu.host_waits()) == waits + LANES
    assert (len(rig.gpu.allocations()), rig.gpu.driver.functions.held) == (allocations, held)
    if not tensorrt:
        assert [call.name for call in rig.gpu.since("image")].count("image_encoder") == LANES - 1
    rig.pipeline.close()
    assert rig.gpu.memory.alive == []


@pytest.mark.parametrize("tensorrt", [False, True])
def test_on_a_gpu_targets_in_one_view_can_wait_together(tensorrt: bool) -> None:
    rig = Rig(default_bundle(), lanes=LANES, tensorrt=tensorrt)
    lanes = [rig.pipeline.lane(lane) for lane in range(LANES)]
    for lane, one in enumerate(lanes):
        visited(one, lane, 0)
    for one in lanes:
        one.encode(IMAGES[1], view_of(0, 1))
        one.attend(ONE_MAP)
    waits = len(rig.gpu.host_waits())
    assert all(one.decode(None).is_finite for one in lanes)
    assert len(rig.gpu.host_waits()) == waits + 1
    rig.pipeline.close()


@pytest.mark.parametrize("backend", WITH_NETWORK)
def test_what_a_target_takes_of_memory_is_told(backend: str) -> None:
    pipelines = [MAKERS[backend](default_bundle(), lanes) for lanes in (1, LANES)]
    told = {pipeline.lane(0).target_bytes for pipeline in pipelines}
    (ring,) = {24 * 4 * (one.map_size + one.pointer_channels) for one in [MemoryLayout.of(default_bundle())]}
    tables = [default_bundle().graphs[name].outputs for name in ("image_encoder", "mask_decoder")]
    own = 4 * sum(math.prod(tensor.sizes) for table in tables for tensor in table.values())
    assert min(told) >= ring + (own if backend == "onnxruntime-cpu" else 0)
    if backend != "onnxruntime-cpu":
        one, four = (pipeline.device_bytes for pipeline in pipelines)  # type: ignore[attr-defined]
        of_several = pipelines[1].target_bytes
        assert abs(four - one - (LANES - 1) * of_several) < of_several // 8
    for pipeline in pipelines:
        pipeline.close()


def allocated_mb() -> float:
    """Resident memory of this process, MB, without pages of files, which the system takes and gives back."""
    (kilobytes,) = re.findall(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(kilobytes) * 1024e-6


@pytest.mark.slow
def test_the_memory_of_four_targets_is_flat() -> None:
    """With camera motion and points, once buffers, filters and memories are full; without a network."""
    targets = open_targets(NullPipeline(default_bundle().spec, LANES))
    settled, frames = 3_000, 20_000
    for number in range(frames):
        prompts = {} if number else {lane: (Prompt(box=corner(lane)), False) for lane in range(LANES)}
        assert len(targets.step(Frame(IMAGES[number % 3], number * 33_000_000), prompts)) == LANES
        targets.commit()
        if number == settled:
            before = allocated_mb()
    assert allocated_mb() - before < 1.0
