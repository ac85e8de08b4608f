"""The two pipelines without a network keep the contract that the real ones keep."""

from __future__ import annotations

import numpy as np
import pytest
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.contract import Pipeline
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, Prompt
from simulation.null_pipeline import NullPipeline

IMAGE = Image.from_array(np.zeros((60, 80, 3), np.uint8))
VIEW = View.full(80, 60, 512)
BOX = Box(10, 20, 30, 15)


def candidates(*boxes: Box) -> Candidates:
    count = len(boxes)
    return Candidates(
        boxes=np.array([box.edges() for box in boxes], np.float32),
        areas=np.array([box.area for box in boxes], np.float32),
        ious=np.linspace(0.9, 0.5, count, dtype=np.float32),
        presence_logit=5.0,
    )


def track(pipeline: Pipeline) -> Candidates:
    pipeline.encode(IMAGE, VIEW)
    pipeline.attend(MemoryPlan((0,), (6,), (0,)))
    return pipeline.decode(None)


class TestNull:
    @pytest.mark.parametrize(
        ("prompt", "box"),
        [
            (Prompt(points=((5.0, 5.0), (40.0, 30.0)), labels=(0, 1)), Box(24, 14, 32, 32)),
            (Prompt(box=Box(-10, 50, 30, 30)), Box(0, 50, 20, 10)),
        ],
    )
    def test_makes_a_box_of_any_prompt(self, prompt: Prompt, box: Box) -> None:
        pipeline = NullPipeline()
        pipeline.encode(IMAGE, VIEW)
        assert pipeline.decode(prompt).box(0) == box


class TestScripted:
    def test_plays_a_list_frame_by_frame(self) -> None:
        script = [candidates(BOX.moved(i, 0), BOX) for i in range(3)]
        pipeline = ScriptedPipeline(script)
        assert [track(pipeline).box(0).x for _ in range(3)] == [10, 11, 12]
        assert pipeline.frames == 3
        with pytest.raises(RuntimeError, match="3 frames; frame 3"):
            track(pipeline)

    def test_plays_a_function_of_frame_and_view(self) -> None:
        seen = []

        def script(index: int, view: View) -> Candidates:
            seen.append((index, view))
            return candidates(BOX.moved(index, 0))

        pipeline = ScriptedPipeline(script)
        track(pipeline)
        assert track(pipeline).box(0).x == 11
        assert seen == [(0, VIEW), (1, VIEW)]

    def test_records_every_call_with_its_frame_and_arguments(self) -> None:
        pipeline = ScriptedPipeline([candidates(BOX)] * 2)
        pipeline.encode(IMAGE, VIEW)
        pipeline.decode(Prompt(box=BOX))
        pipeline.remember(0, 7, True)
        track(pipeline)
        pipeline.close()
        assert [(call.name, call.frame) for call in pipeline.calls] == [
            ("encode", 0),
            ("decode", 0),
            ("remember", 0),
            ("encode", 1),
            ("attend", 1),
            ("decode", 1),
            ("close", 1),
        ]
        assert pipeline.calls_of("remember")[0].arguments == (0, 7, True)
        assert pipeline.calls_of("attend")[0].arguments == (MemoryPlan((0,), (6,), (0,)),)

    def test_masks_are_the_candidates_boxes(self) -> None:
        pipeline = ScriptedPipeline([candidates(Box(1, 1, 2, 2), BOX)])
        track(pipeline)
        mask = pipeline.mask(1)
        assert mask[20:35, 10:40].all()
        assert np.count_nonzero(mask) == 30 * 15
