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
from runtime.frames import PROMPTS, SIDE, looked, window
from support.gpu_rig import Rig

from efftam_ros.core.contract import Look, Remembered
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.frame_state import FrameState
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline

MAKERS: dict[str, Callable[[Bundle], FrameState]] = {
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
def both(request: pytest.FixtureRequest) -> Iterator[tuple[FrameState, FrameState]]:
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


BEFORE = ("given up", "refused", "searched", "looked at twice", "asked for a prompt", "refused a prompt")


def test_what_comes_between_changes_no_answer(both: tuple[FrameState, FrameState]) -> None:
    draw, story = random.Random(5), list[str]()
    ours, _ = both
    kept: list[int] = []  # slots, the newest last
    given: list[tuple[np.ndarray, np.ndarray]] = []  # arrays and what they were when they were given
    for step in range(STEPS):
        index = step % len(IMAGES)
        image, previous, following = (IMAGES[(index + n) % len(IMAGES)] for n in (0, -1, 1))
        view, other = view_of(draw, image, index), view_of(draw, previous, index + 1)
        prompt = prompt_of(draw, image) if step == 0 or draw.random() < 0.15 else None
        before = draw.choice(BEFORE) if step and draw.random() < 0.7 else ""
        story.append(f"{step}: {before}, {view}, prompt {prompt is not None}")
        if before == "searched":
            views = (other, view)[: draw.randint(1, 2)]
            ours.look(image, [Look(0, views, plan_of(kept), is_search=True)]).candidates(0)
        elif before == "looked at twice":
            looked(ours, image, view, plan_of(kept[:1]))
        elif before == "refused":
            with pytest.raises(InputError):
                looked(ours, FAULTY, view)
        elif before == "asked for a prompt":
            looked(ours, image, view, prompt=prompt_of(draw, image))
        elif before == "refused a prompt":
            with pytest.raises(InputError):
                looked(ours, image, view, prompt=OUTSIDE)
        elif before:
            ours.look(previous, [Look(0, (other,), plan_of(kept))])  # and nobody waits for it
        answers = [pipeline.look(image, [Look(0, (view,), plan_of(kept), prompt)]) for pipeline in both]
        if draw.random() < 0.8:
            ours.prefetch(draw.choice((following, following, following, previous, FAULTY, LARGER)))
        (one,), (another,) = (found.candidates(0) for found in answers)
        for name in ("boxes", "areas", "ious"):
            ours_of, theirs_of = (getattr(found, name) for found in (one, another))
            given.append((ours_of, ours_of.copy()))
            assert np.array_equal(ours_of, theirs_of, equal_nan=True), story
        assert one.presence_logit == another.presence_logit, story
        choice, slot, present = draw.randrange(len(one)), step % 24, draw.random() < 0.9
        if draw.random() < 0.3:
            answers[0].mask(0, choice)
        if step == 0 or draw.random() < 0.8:
            for pipeline in both:
                pipeline.remember([Remembered(0, choice, slot, present)])
            kept = [one for one in kept if one != slot] + [slot]
        if draw.random() < 0.3:
            mask = answers[0].mask(0, choice)
            given.append((mask, mask.copy()))
            assert np.array_equal(mask, answers[1].mask(0, choice)), story
    assert all(np.array_equal(*pair, equal_nan=pair[0].dtype != np.uint8) for pair in given)
