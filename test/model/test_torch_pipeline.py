"""The eager back end reproduces the reference predictor over whole clips, prompt by prompt and frame by frame."""

from __future__ import annotations

from pathlib import Path

import golden
import numpy as np
import pytest
import torch
from golden.clip import BOX_EDGES, CENTRES, CLICK

from efftam_ros.core.contract import InputRefused
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Image, MemoryPlan, Prompt
from efftam_ros.runtime.torch_eager import TorchPipeline

GOLDEN = Path(golden.__path__[0])
ABSENT = -1024.0

PROMPTS = {
    "box": {0: Prompt(box=Box.from_edges(*BOX_EDGES))},
    "click": {0: Prompt(points=(CLICK,), labels=(1,))},
    "absent": {0: Prompt(box=Box.from_edges(*BOX_EDGES))},
    "reprompt": {0: Prompt(box=Box.from_edges(*BOX_EDGES)), 10: Prompt(points=(CENTRES[10],), labels=(1,))},
    "short": {0: Prompt(box=Box.from_edges(*BOX_EDGES))},
}


class Tap:
    """Keeps what a network's decoder was asked last and what its memory encoder was given and gave."""

    def __init__(self, network, monkeypatch) -> None:
        self.memory = self.pointer = self.logits = torch.empty(0)
        encode_memory = network.encode_memory

        def tapped(features, mask_logits, present, *rest):
            self.memory, self.pointer = encode_memory(features, mask_logits, present, *rest)
            self.logits = mask_logits if present > 0 else torch.full_like(mask_logits, ABSENT)
            return self.memory, self.pointer

        monkeypatch.setattr(network, "encode_memory", tapped)


def reference_plan(frame: int, prompted: set[int]) -> MemoryPlan:
    """What the reference predictor attends to on a tracked frame; frame i lies in slot i."""
    tracked = set(range(frame)) - prompted
    recent = [(frame - d, d - 1) for d in range(6, 0, -1) if frame - d in tracked]
    maps = [(f, 6) for f in sorted(prompted)] + recent
    pointers = sorted(prompted) + [frame - d for d in range(1, 16) if frame - d in tracked]
    return MemoryPlan(tuple(f for f, _ in maps), tuple(row for _, row in maps), tuple(pointers))


def run_clip(network, frames, prompts, pillow_input, monkeypatch):
    """Yield for every frame what the golden files store of it."""
    tap = Tap(network, monkeypatch)
    side = network.spec.side
    pipeline = TorchPipeline(network, lambda image, view: pillow_input(rgb(image), side).numpy())
    prompted: set[int] = set()
    for t, frame in enumerate(frames):
        pipeline.encode(Image.from_array(frame, "rgb8"), View.full(640, 480, side))
        plan = MemoryPlan()
        if t not in prompts:
            plan = reference_plan(t, prompted)
            pipeline.attend(plan)
        candidates = pipeline.decode(prompts.get(t))
        prompted |= prompts.keys() & {t}
        best = int(candidates.ious.argmax())
        present = candidates.presence_logit > 0
        pipeline.remember(best, t, present)
        mask = pipeline.mask(best) > 0 if present else np.zeros((480, 640), bool)
        yield {
            "lowres": tap.logits[0, 0].numpy(),
            "iou": candidates.ious[best],
            "iou_all": candidates.ious,
            "best": best,
            "score": candidates.presence_logit,
            "ptr": tap.pointer[0].numpy(),
            "memory": tap.memory[0].bfloat16().float().numpy(),
            "mask": mask,
            "n_mem": len(plan.slots),
            "n_ptr": len(plan.pointer_slots),
            "candidates": candidates,
        }


def rgb(image: Image) -> np.ndarray:
    return image.rows.reshape(image.height, image.width, 3)


def assert_clip(name: str, case: str, network, clip, prompts, pillow_input, monkeypatch) -> None:
    frames, truth = clip
    with np.load(GOLDEN / f"video_{name}_{case}.npz") as stored:
        expected = {key: stored[key] for key in stored.files}
    grid, count = network.spec.grid, len(expected["score"])
    map_step = grid // 4
    for t, got in enumerate(run_clip(network, frames[:count], prompts, pillow_input, monkeypatch)):
        where = f"{name} {case} frame {t}"
        want = {key: values[t] for key, values in expected.items()}
        lowres = got["lowres"]
        step = lowres.shape[0] // want["lowres"].shape[0]
        np.testing.assert_allclose(lowres[::4, ::4], want["lowres_s4"], atol=2e-4, rtol=0, err_msg=where)
        np.testing.assert_allclose(
            lowres[::step, ::step], want["lowres"].astype(np.float32), atol=1.6e-2, rtol=0, err_msg=where
        )
        stats = [lowres.mean(), lowres.std(), lowres.max(), lowres.min()]
        np.testing.assert_allclose(stats, want["low_stats"], atol=2e-4, rtol=1e-6, err_msg=where)
        assert got["iou"] == pytest.approx(want["iou"], abs=1e-5), where
        ious = want["iou_all"][: len(got["iou_all"])]
        np.testing.assert_allclose(got["iou_all"], ious, atol=1e-5, rtol=0, err_msg=where)
        assert np.isnan(want["iou_all"][len(got["iou_all"]) :]).all(), where
        assert got["best"] == want["best"], where
        assert got["score"] == pytest.approx(want["score"], abs=5e-5), where
        np.testing.assert_allclose(got["ptr"], want["ptr"], atol=2e-5, rtol=0, err_msg=where)
        assert (got["n_mem"], got["n_ptr"]) == (want["n_mem"], want["n_ptr"]), where

        memory = got["memory"].T.reshape(64, grid, grid)
        sample = memory[::4, ::map_step, ::map_step]
        np.testing.assert_allclose(sample, want["mem_sample"], atol=1e-2, rtol=0, err_msg=where)
        mem_stats = [memory.mean(), memory.std(), np.abs(memory).max()]
        np.testing.assert_allclose(mem_stats, want["mem_stats"], atol=1e-2, rtol=0, err_msg=where)

        rows, columns = np.nonzero(got["mask"])
        box = [columns.min(), rows.min(), columns.max(), rows.max()] if len(rows) else [-1] * 4
        assert list(want["box"]) == box, where
        assert len(rows) == want["area"], where
        union = (got["mask"] | truth[t]).sum()
        assert (got["mask"] & truth[t]).sum() / union == pytest.approx(want["true_iou"], abs=1e-6), where
        if len(rows):  # the sub-pixel box is that of the logits, half a logit pixel from the image's at most
            outer = np.array([box[0], box[1], box[2] + 1, box[3] + 1])
            np.testing.assert_allclose(got["candidates"].boxes[got["best"]], outer, atol=1.5, err_msg=where)


@pytest.mark.parametrize("case", ["box", "click", "mask", "absent", "reprompt"])
def test_whole_clip(case, golden_network, golden_clip, pillow_input, monkeypatch):
    clip = golden_clip(case == "absent")
    prompts = {0: Prompt(mask=clip[1][0])} if case == "mask" else PROMPTS[case]
    network = golden_network("ti_512x512")
    assert_clip("ti_512x512", case, network, clip, prompts, pillow_input, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ti", "ti_1", "ti_2"])
def test_short_clip_at_1024(name, golden_network, golden_clip, pillow_input, monkeypatch):
    network = golden_network(name)
    assert_clip(name, "short", network, golden_clip(False), PROMPTS["short"], pillow_input, monkeypatch)
