"""What every pipeline promises, whatever computes it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from golden.clip import clip
from runtime.frames import BOX, clip_image, same, window
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.contract import Pipeline
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
    """Every test begins between two frames, with the target of frame 0 in slot 0."""
    prompted(opened)
    opened.remember(0, 0, True)
    return opened


@pytest.fixture
def has_network(request: pytest.FixtureRequest) -> bool:
    return request.node.callspec.params["opened"] in WITH_NETWORK


def prompted(pipeline: Pipeline) -> Candidates:
    pipeline.encode(clip_image(0), window(0))
    return pipeline.decode(Prompt(box=BOX))


def tracked(pipeline: Pipeline, index: int, view: View | None = None) -> Candidates:
    pipeline.encode(clip_image(index), view or window(index))
    pipeline.attend(ONE_MAP)
    return pipeline.decode(None)


def test_a_box_has_one_answer_and_its_mask_has_the_image_s_size(pipeline: Pipeline) -> None:
    found = prompted(pipeline)
    assert len(found) == 1
    assert pipeline.mask(0).shape == clip()[0][0].shape[:2]
    assert set(np.unique(pipeline.mask(0))) <= {0, 255}


def test_a_search_finds_in_each_view_what_a_frame_would(pipeline: Pipeline) -> None:
    views = [window(1, shift=shift) for shift in (0.0, 40.0, -30.0)]
    found = pipeline.search(clip_image(1), views, ONE_MAP)
    assert len(found) == len(views)
    for view, candidates in zip(views, found, strict=True):
        assert same(candidates, tracked(pipeline, 1, view))


def test_a_search_in_more_views_than_one_wait_serves_misses_none(pipeline: Pipeline) -> None:
    views = [window(1, shift=3.0 * index) for index in range(18)]
    found = pipeline.search(clip_image(1), views, ONE_MAP)
    for index in (0, 15, 16, 17):
        assert same(found[index], tracked(pipeline, 1, views[index]))


def test_the_time_of_a_search_belongs_to_the_frame_that_follows_it(
    pipeline: Pipeline, has_network: bool
) -> None:
    pipeline.search(clip_image(1), [window(1)], ONE_MAP)
    tracked(pipeline, 1)
    assert ("search" in pipeline.stage_seconds) == has_network
    tracked(pipeline, 2)
    assert "search" not in pipeline.stage_seconds


def test_a_search_leaves_no_frame_to_go_on_with(pipeline: Pipeline) -> None:
    tracked(pipeline, 1)
    pipeline.search(clip_image(1), [window(1)], ONE_MAP)
    for call in (
        lambda: pipeline.attend(ONE_MAP),
        lambda: pipeline.decode(None),
        lambda: pipeline.remember(0, 1, True),
    ):
        with pytest.raises(RuntimeError, match="encode"):
            call()


def test_a_search_in_no_view_finds_nothing_and_one_without_memory_is_an_error(pipeline: Pipeline) -> None:
    assert pipeline.search(clip_image(1), [], ONE_MAP) == []
    with pytest.raises(ValueError, match="at least one slot"):
        pipeline.search(clip_image(1), [window(1)], MemoryPlan())


def test_each_tracked_frame_attends_before_it_is_decoded(pipeline: Pipeline) -> None:
    """That the frame before it has attended, or tried to, or it itself before a prompt, does not count."""

    def refused() -> None:
        with pytest.raises(RuntimeError, match="without attend"):
            pipeline.decode(None)

    for _ in range(2):
        pipeline.encode(clip_image(1), window(1))
        refused()
        with pytest.raises(IndexError):
            pipeline.attend(MemoryPlan((24,), (6,), (0,)))
        refused()
        pipeline.attend(ONE_MAP)
        pipeline.decode(None)
        pipeline.decode(Prompt(box=BOX))
        refused()
        pipeline.attend(ONE_MAP)


def test_a_refused_image_leaves_no_old_one_behind(pipeline: Pipeline) -> None:
    with pytest.raises(InputError, match="h264"):
        pipeline.encode(Image(clip_image(0).rows, 480, 360, "h264"), window(0))
    with pytest.raises(RuntimeError, match="encode"):
        pipeline.attend(ONE_MAP)


def test_a_refused_prompt_leaves_the_frame_usable(pipeline: Pipeline) -> None:
    wanted = tracked(pipeline, 1)
    pipeline.encode(clip_image(1), window(1))
    pipeline.attend(ONE_MAP)
    with pytest.raises(InputError, match="5000"):
        pipeline.decode(Prompt(box=Box(5000, 5000, 10, 10)))
    assert same(pipeline.decode(None), wanted)
    assert len(pipeline.decode(Prompt(box=BOX))) == 1


@pytest.mark.parametrize("slot", [-1, 24, 1000])
def test_a_slot_that_does_not_exist_is_an_error(pipeline: Pipeline, slot: int) -> None:
    tracked(pipeline, 1)
    with pytest.raises(IndexError, match=str(slot)):
        pipeline.remember(0, slot, True)
    with pytest.raises(IndexError, match=str(slot)):
        pipeline.attend(MemoryPlan((slot,), (6,), (0,)))
    with pytest.raises(IndexError, match=str(slot)):
        pipeline.attend(MemoryPlan((0,), (6,), (0, slot)))
    with pytest.raises(IndexError, match=str(slot)):
        pipeline.search(clip_image(1), [window(1)], MemoryPlan((0,), (6,), (slot,)))


@pytest.mark.parametrize("maker", MAKERS)
def test_nothing_comes_after_closing_which_may_be_done_twice(maker: str, shipped: Bundle) -> None:
    if maker == "device":
        pytest.skip("opening takes long; closing is tested with the device pipeline")
    pipeline = MAKERS[maker](shipped)
    prompted(pipeline)
    pipeline.close()
    pipeline.close()
    for call in (
        lambda: pipeline.encode(clip_image(0), window(0)),
        lambda: pipeline.decode(None),
        lambda: pipeline.search(clip_image(0), [window(0)], ONE_MAP),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()
