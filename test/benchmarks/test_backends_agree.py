"""The back ends that run on any machine give the same answers to the same frames."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from golden.clip import BOX_EDGES, clip

from benchmarks.backends import open_measurable
from efftam_ros.core.contract import Look, Pipeline, Remembered
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import Bundle

ABSENT = 2


def track(pipeline: Pipeline) -> Iterator[tuple[Candidates, np.ndarray]]:
    """A box, then four tracked frames in a window; the target counts as absent on one of them."""
    for index, picture in enumerate(clip()[0][:5]):
        view = View.window(180 + 14 * index, 200 + 6 * index, 420, pipeline.spec.image_side)
        slots = (0, *range(index - 1, 0, -1))
        plan = MemoryPlan(slots, (6, *range(len(slots) - 1)), slots)
        prompt = None if index else Prompt(box=Box.from_edges(*BOX_EDGES))
        answers = pipeline.look(Image.from_array(picture, "rgb8"), [Look(0, (view,), plan, prompt)])
        (candidates,) = answers.candidates(0)
        pipeline.remember([Remembered(0, 0, index, present=index != ABSENT)])
        yield candidates, answers.mask(0, 0)


def test_pytorch_and_onnxruntime(shipped: Bundle) -> None:
    pytest.importorskip("torch", reason="the torch back end needs torch: scripts/setup_env --with-tests")
    pipelines = [
        open_measurable(shipped.folder, backend, threads=2) for backend in ("torch", "onnxruntime-cpu")
    ]
    for (first, first_mask), (second, second_mask) in zip(*map(track, pipelines), strict=True):
        assert np.allclose(first.boxes, second.boxes, atol=1e-2, equal_nan=True)
        assert np.allclose(first.ious, second.ious, atol=1e-4)
        assert first.presence_logit == pytest.approx(second.presence_logit, abs=1e-3)
        assert np.count_nonzero(first_mask != second_mask) <= 5
    for pipeline in pipelines:
        pipeline.close()
