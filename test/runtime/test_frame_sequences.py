"""What a frame's answer must not depend on: announcements, searches, masks, what was refused or given up.

Two pipelines get the same frames; only one of them gets anything else. Both say the same to the last bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from golden.clip import clip
from runtime import frames
from runtime.frames import PROMPTS, SIDE, window
from support.gpu_rig import Rig

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.frame_state import FramePipeline
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline

MAKERS: dict[str, Callable[[Bundle], FramePipeline]] = {
    "onnxruntime-cpu": lambda bundle: OrtPipeline(bundle, threads=1),
    "onnxruntime-cuda": lambda bundle: Rig(bundle, seed=1).pipeline,
    "tensorrt": lambda bundle: Rig(bundle, seed=2, tensorrt=True).pipeline,
    "memory that host and GPU share": lambda bundle: Rig(bundle, zero_copy=True).pipeline,
}
STEPS = 60
LARGER = Image.from_array(np.repeat(np.repeat(clip()[0][1], 2, axis=0), 2, axis=1), "rgb8")
IMAGES = [*map(frames.clip_image, range(6)), LARGER]
FAULTY = replace(IMAGES[1], encoding="jpeg2000")
OUTSIDE = Prompt(box=Box(5000, 5000, 10, 10))


@pytest.fixture(params=MAKERS)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[FramePipeline, FramePipeline]]:
    pipelines = tuple(MAKERS[request.param](default_bundle()) for _ in range(2))
    yield pipelines
    for pipeline in pipelines:
        pipeline.close()


def prompt_of(draw: random.Random, image: Image) -> Prompt:
    """A mask is as large as the others."""
    return draw.choice([one for one in PROMPTS.values() if one.mask is None or image is not LARGER])


def view_of(draw: random.Random, image: Image, index: int) -> View:
    if draw.random() < 0.6:
        return View.full(image.width, image.height, SIDE)
    return window(index)


def plan_of(slots: list[int]) -> MemoryPlan:
    """The newest ones first."""
    newest = tuple(slots[:-6:-1])
    return MemoryPlan(newest, (6, *range(len(newest) - 1)), newest)


BEFORE = ("given up", "attended to and given up", "refused", "searched", "encoded twice")
WITHIN = ("asked for a prompt", "attended to with another memory", "refused a prompt")


def test_what_comes_between_changes_no_answer(both: tuple[FramePipeline, FramePipeline]) -> None:
    draw, story = random.Random(5), list[str]()
    ours, theirs = both
    kept: list[int] = []  # slots, the newest last
    given: list[tuple[np.ndarray, np.ndarray]] = []  # arrays and what they were when they were given
    for step in range(STEPS):
        index = step % len(IMAGES)
        image, previous, following = (IMAGES[(index + n) % len(IMAGES)] for n in (0, -1, 1))
        view, other = view_of(draw, image, index), view_of(draw, previous, index + 1)
        prompt = prompt_of(draw, image) if step == 0 or draw.random() < 0.15 else None
        before = draw.choice(BEFORE) if step and draw.random() < 0.5 else ""
        within = draw.choice(WITHIN) if step and draw.random() < 0.5 else ""
        story.append(f"{step}: {before}, {within}, {view}, prompt {prompt is not None}")
        if before == "searched":
            ours.search(image, [other, view][: draw.randint(1, 2)], plan_of(kept))
        elif before == "encoded twice":
            ours.encode(image, view)
        elif before == "refused":
            with pytest.raises(InputError):
                ours.encode(FAULTY, view)
        elif before:
            ours.encode(previous, other)
            if before == "attended to and given up":
                ours.attend(plan_of(kept))
        for pipeline in both:
            pipeline.encode(image, view)
        if within == "asked for a prompt":
            ours.decode(prompt_of(draw, image))
        elif within == "attended to with another memory":
            ours.attend(plan_of(kept[:1]))
        elif within:
            with pytest.raises(InputError):
                ours.decode(OUTSIDE)
        if prompt is None:
            for pipeline in both:
                pipeline.attend(plan_of(kept))
        if draw.random() < 0.8:
            ours.prefetch(draw.choice((following, following, following, previous, FAULTY, LARGER)))
        answers = [pipeline.decode(prompt) for pipeline in both]
        for name in ("boxes", "areas", "ious"):
            one, another = (getattr(found, name) for found in answers)
            given.append((one, one.copy()))
            assert np.array_equal(one, another, equal_nan=True), story
        assert answers[0].presence_logit == answers[1].presence_logit, story
        choice, slot, present = draw.randrange(len(answers[0])), step % 24, draw.random() < 0.9
        if draw.random() < 0.3:
            ours.mask(choice)
        if step == 0 or draw.random() < 0.8:
            for pipeline in both:
                pipeline.remember(choice, slot, present)
            kept = [one for one in kept if one != slot] + [slot]
        if draw.random() < 0.3:
            mask = ours.mask(choice)
            given.append((mask, mask.copy()))
            assert np.array_equal(mask, theirs.mask(choice)), story
    assert all(np.array_equal(*pair, equal_nan=pair[0].dtype != np.uint8) for pair in given)
