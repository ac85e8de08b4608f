"""What every pipeline promises, whatever computes it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from golden.clip import clip
from runtime.frames import BOX, clip_image, looked, same, window
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.contract import Look, Pipeline, Remembered
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline
from simulation.null_pipeline import NullPipeline, certain_candidate

ONE_MAP = MemoryPlan((0,), (6,), (0,))


def scripted(bundle: Bundle) -> Pipeline:
    return ScriptedPipeline(lambda frame, view: certain_candidate(BOX), bundle.spec)


def pytorch(bundle: Bundle) -> Pipeline:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the baseline needs torch: pip install torch")
    from benchmarks.pytorch.torch_pipeline import TorchPipeline

    return TorchPipeline.from_bundle(bundle, threads=1)


def on_a_fake_gpu(bundle: Bundle) -> Pipeline:
    from support.gpu_rig import Rig

    return Rig(bundle).pipeline


MAKERS: dict[str, Callable[[Bundle], Pipeline]] = {
    "null": lambda bundle: NullPipeline(bundle.spec),
    "scripted": scripted,
    "onnxruntime-cpu": lambda bundle: OrtPipeline(bundle, threads=1),
    "torch": pytorch,
    "device": on_a_fake_gpu,
}
WITH_NETWORK = ("onnxruntime-cpu", "torch", "device")


@pytest.fixture(scope="module", params=MAKERS)
def opened(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    from efftam_ros.runtime.bundle import default_bundle

    pipeline = MAKERS[request.param](default_bundle())
    yield pipeline
    pipeline.close()


@pytest.fixture
def pipeline(opened: Pipeline) -> Pipeline:
    """Every test begins between two images, with the target of image 0 in slot 0."""
    prompted(opened)
    opened.remember([Remembered(0, 0, 0, True)])
    return opened


@pytest.fixture
def has_network(request: pytest.FixtureRequest) -> bool:
    return request.node.callspec.params["opened"] in WITH_NETWORK


def prompted(pipeline: Pipeline) -> Candidates:
    return looked(pipeline, clip_image(0), window(0), prompt=Prompt(box=BOX))


def tracked(pipeline: Pipeline, index: int, view: View | None = None) -> Candidates:
    return looked(pipeline, clip_image(index), view or window(index), ONE_MAP)


def search(*views: View, plan: MemoryPlan = ONE_MAP) -> Look:
    return Look(0, views, plan, is_search=True)


def test_a_box_has_one_answer_and_its_mask_has_the_image_s_size(pipeline: Pipeline) -> None:
    answers = pipeline.look(clip_image(0), [Look(0, (window(0),), prompt=Prompt(box=BOX))])
    (found,) = answers.candidates(0)
    assert len(found) == 1
    assert answers.mask(0, 0).shape == clip()[0][0].shape[:2]
    assert set(np.unique(answers.mask(0, 0))) <= {0, 255}


def test_a_search_finds_in_each_view_what_a_frame_would(pipeline: Pipeline) -> None:
    views = [window(1, shift=shift) for shift in (0.0, 40.0, -30.0)]
    found = pipeline.look(clip_image(1), [search(*views)]).candidates(0)
    assert len(found) == len(views)
    for view, candidates in zip(views, found, strict=True):
        assert same(candidates, tracked(pipeline, 1, view))


def test_a_search_in_more_views_than_one_wait_serves_misses_none(pipeline: Pipeline) -> None:
    views = [window(1, shift=3.0 * index) for index in range(18)]
    found = pipeline.look(clip_image(1), [search(*views)]).candidates(0)
    for index in (0, 15, 16, 17):
        assert same(found[index], tracked(pipeline, 1, views[index]))


def test_a_search_in_no_view_finds_nothing(pipeline: Pipeline) -> None:
    assert list(pipeline.look(clip_image(1), [search()]).candidates(0)) == []


def test_the_time_of_a_search_is_its_own(pipeline: Pipeline, has_network: bool) -> None:
    answers = pipeline.look(clip_image(1), [search(window(1))])
    answers.candidates(0)
    assert set(answers.stage_seconds(0)) == ({"search"} if has_network else set())
    answers = pipeline.look(clip_image(1), [Look(0, (window(1),), ONE_MAP)])
    answers.candidates(0)
    assert "search" not in answers.stage_seconds(0)


@pytest.mark.parametrize(
    "look",
    [
        search(window(1), plan=MemoryPlan()),
        Look(0, (window(1),), ONE_MAP, Prompt(box=BOX), is_search=True),
        Look(0, (window(1), window(2)), ONE_MAP),
        Look(0, (), ONE_MAP),
    ],
)
def test_a_look_that_means_nothing_is_an_error(pipeline: Pipeline, look: Look) -> None:
    with pytest.raises(ValueError, match=r"view|search"):
        pipeline.look(clip_image(1), [look])


def test_one_target_has_one_look_in_a_call(pipeline: Pipeline) -> None:
    look = Look(0, (window(1),), ONE_MAP)
    with pytest.raises(ValueError, match="one look per target"):
        pipeline.look(clip_image(1), [look, look])


@pytest.mark.parametrize("target", [-1, sys.maxsize])
def test_a_target_beyond_those_there_may_be_is_an_error(pipeline: Pipeline, target: int) -> None:
    with pytest.raises(IndexError, match=str(target)):
        pipeline.look(clip_image(1), [Look(target, (window(1),), ONE_MAP)])
    with pytest.raises(IndexError, match=str(target)):
        pipeline.remember([Remembered(target, 0, 0, True)])


def test_only_what_was_answered_in_this_image_can_be_remembered_once(pipeline: Pipeline) -> None:
    def refused() -> None:
        with pytest.raises(RuntimeError, match="no candidate to store"):
            pipeline.remember([Remembered(0, 0, 1, True)])

    refused()
    answers = pipeline.look(clip_image(1), [Look(0, (window(1),), ONE_MAP)])
    refused()  # not read yet
    answers.candidates(0)
    pipeline.remember([])  # ends the image
    refused()
    tracked(pipeline, 1)
    pipeline.remember([Remembered(0, 0, 1, True)])
    refused()
    tracked(pipeline, 1)
    pipeline.look(clip_image(1), [search(window(1))]).candidates(0)
    refused()


def test_a_look_ends_what_was_answered_before_it(pipeline: Pipeline) -> None:
    before = pipeline.look(clip_image(1), [Look(0, (window(1),), ONE_MAP)])
    read = pipeline.look(clip_image(1), [Look(0, (window(1),), ONE_MAP)])
    (found,) = read.candidates(0)
    with pytest.raises(RuntimeError, match="look was called again"):
        before.candidates(0)
    tracked(pipeline, 2)
    with pytest.raises(RuntimeError, match="look was called again"):
        read.mask(0, 0)
    assert same(read.candidates(0)[0], found)


def test_a_search_has_no_mask(pipeline: Pipeline) -> None:
    answers = pipeline.look(clip_image(1), [search(window(1))])
    answers.candidates(0)
    with pytest.raises(RuntimeError, match="no mask"):
        answers.mask(0, 0)


FAULTY = Image(clip_image(0).rows, 480, 360, "h264")


def test_a_refused_image_leaves_no_old_one_behind(pipeline: Pipeline) -> None:
    tracked(pipeline, 1)
    for call in (
        lambda: pipeline.check(FAULTY),
        lambda: pipeline.look(FAULTY, [Look(0, (window(0),), ONE_MAP)]),
    ):
        with pytest.raises(InputError, match="h264"):
            call()
    with pytest.raises(RuntimeError, match="no candidate to store"):
        pipeline.remember([Remembered(0, 0, 1, True)])


def test_a_refused_prompt_changes_no_later_answer(pipeline: Pipeline) -> None:
    wanted, image = tracked(pipeline, 1), clip_image(1)
    looked(pipeline, image, window(1), ONE_MAP)
    with pytest.raises(InputError, match="5000"):
        looked(pipeline, image, window(1), prompt=Prompt(box=Box(5000, 5000, 10, 10)))
    assert same(looked(pipeline, image, window(1), ONE_MAP), wanted)
    assert len(looked(pipeline, image, window(1), prompt=Prompt(box=BOX))) == 1


@pytest.mark.parametrize("slot", [-1, 24, 1000])
def test_a_slot_that_does_not_exist_is_an_error(pipeline: Pipeline, slot: int) -> None:
    tracked(pipeline, 1)
    with pytest.raises(IndexError, match=str(slot)):
        pipeline.remember([Remembered(0, 0, slot, True)])
    for plan in (MemoryPlan((slot,), (6,), (0,)), MemoryPlan((0,), (6,), (0, slot))):
        for look in (Look(0, (window(1),), plan), search(window(1), plan=plan)):
            with pytest.raises(IndexError, match=str(slot)):
                pipeline.look(clip_image(1), [look])


@pytest.mark.parametrize("maker", MAKERS)
def test_nothing_comes_after_closing_which_may_be_done_twice(maker: str, shipped: Bundle) -> None:
    if maker == "device":
        pytest.skip("opening takes long; closing is tested with the device pipeline")
    pipeline = MAKERS[maker](shipped)
    answers = pipeline.look(clip_image(0), [Look(0, (window(0),), prompt=Prompt(box=BOX))])
    answers.candidates(0)
    pipeline.close()
    pipeline.close()
    for call in (
        lambda: pipeline.look(clip_image(0), [Look(0, (window(0),), ONE_MAP)]),
        lambda: pipeline.remember([]),
        lambda: answers.mask(0, 0),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()
