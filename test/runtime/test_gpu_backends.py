"""On a machine with an NVIDIA GPU: every back end tracks as the CPU does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from golden.clip import BOX_EDGES, clip
from support.scripted_target import one_target

from benchmarks.backends import MEASURABLE, open_measurable
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import BackendError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import Frame, Image, Prompt, Track
from efftam_ros.runtime.backends import DEFAULT_BACKEND
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.opening import open_pipeline

pytestmark = pytest.mark.gpu
HALF = ("torch-cuda-bf16", "torch-cuda-compiled")


@pytest.fixture(
    scope="module", params=[name for name in MEASURABLE if name not in (DEFAULT_BACKEND, "torch")]
)
def pipeline(request: pytest.FixtureRequest, shipped: Bundle) -> Iterator[tuple[str, Pipeline]]:
    try:
        opened = open_measurable(shipped.folder, request.param)
    except BackendError as error:
        pytest.skip(str(error))
    yield request.param, opened
    opened.close()


@pytest.fixture(scope="module")
def exact(shipped: Bundle) -> list[tuple[Track, np.ndarray | None]]:
    """The CPU's boxes and masks."""
    return list(tracks(open_pipeline(bundle=shipped)))


def tracks(pipeline: Pipeline) -> Iterator[tuple[Track, np.ndarray | None]]:
    tracker = one_target(pipeline, TrackerConfig(policy="efficienttam"))
    for index, picture in enumerate(clip()[0]):
        prompt = None if index else Prompt(box=Box.from_edges(*BOX_EDGES))
        yield (
            tracker.step(Frame(Image.from_array(picture, "rgb8"), 33_000_000 * index), prompt),
            tracker.mask(),
        )


def test_boxes_and_masks_are_those_of_the_cpu(
    pipeline: tuple[str, Pipeline], exact: list[tuple[Track, np.ndarray | None]]
) -> None:
    name, opened = pipeline
    least = 0.9 if name in HALF else 0.97
    for (ours, our_mask), (theirs, their_mask) in zip(tracks(opened), exact, strict=True):
        assert ours.state is theirs.state
        assert ours.box is not None
        assert theirs.box is not None
        assert iou(ours.box, theirs.box) > least
        assert our_mask is not None
        assert their_mask is not None
        union = np.count_nonzero(our_mask | their_mask)
        assert np.count_nonzero(our_mask & their_mask) > least * union


def test_the_same_images_give_the_same_boxes_again(pipeline: tuple[str, Pipeline]) -> None:
    _, opened = pipeline
    first = [track.box for track, _ in tracks(opened)]
    assert [track.box for track, _ in tracks(opened)] == first
