"""The eager back end reproduces the reference predictor over whole clips, frame by frame."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the network needs torch: scripts/setup_env --with-tests")
pytest.importorskip("onnx", reason="bundles need onnx: scripts/setup_env --with-tests")

from collections.abc import Iterable, Iterator
from pathlib import Path

import golden
import numpy as np
import torch
from golden.clip import BOX_EDGES, CENTRES, CLICK

from benchmarks.pytorch.torch_pipeline import TorchPipeline
from efftam_ros.core.contract import Look, Remembered
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.types import Image, MemoryPlan, Prompt

GOLDEN = Path(golden.__path__[0])
ABSENT = -1024.0

PROMPTS = {
    "box": {0: Prompt(box=Box.from_edges(*BOX_EDGES))},
    "click": {0: Prompt(points=(CLICK,), labels=(1,))},
    "absent": {0: Prompt(box=Box.from_edges(*BOX_EDGES))},
    "reprompt": {0: Prompt(box=Box.from_edges(*BOX_EDGES)), 10: Prompt(points=(CENTRES[10],), labels=(1,))},
}


class Tap:
    """Keeps the mask that a network's memory encoder was given last and what it made of it."""

    def __init__(self, network, monkeypatch) -> None:
        encode_memory = network.encode_memory

        def tapped(features, mask_logits, present, *rest):
            memory, pointer = encode_memory(features, mask_logits, present, *rest)
            self.logits = torch.where(present > 0, mask_logits, ABSENT)[0, 0].numpy()
            self.memory, self.pointer = memory[0].bfloat16().float().numpy(), pointer[0].numpy()
            return memory, pointer

        monkeypatch.setattr(network, "encode_memory", tapped)


def reference_plan(frame: int, prompted: set[int]) -> MemoryPlan:
    """What the reference predictor attends to on a tracked frame; frame i lies in slot i."""
    tracked = set(range(frame)) - prompted
    recent = [(frame - d, d - 1) for d in range(6, 0, -1) if frame - d in tracked]
    maps = [(f, 6) for f in sorted(prompted)] + recent
    pointers = sorted(prompted) + [frame - d for d in range(1, 16) if frame - d in tracked]
    return MemoryPlan(tuple(f for f, _ in maps), tuple(row for _, row in maps), tuple(pointers))


def rgb(image: Image) -> np.ndarray:
    return image.rows.reshape(image.height, image.width, 3)


LIMITS = {  # absolute, FP32 against FP32
    "lowres": 1.6e-2,
    "lowres_s4": 2e-4,
    "low_stats": 2e-4,
    "iou_all": 1e-5,
    "iou": 1e-5,
    "score": 5e-5,
    "ptr": 2e-5,
    "mem_sample": 1e-2,
    "mem_stats": 1e-2,
    "true_iou": 1e-6,
}
"""How far each golden array may be off; those not named must be equal."""


def run_clip(network, clip, prompts, pillow_input, monkeypatch) -> Iterator[dict]:
    """Yield for every frame what the golden files store of it, by their names."""
    tap = Tap(network, monkeypatch)
    grid, side = network.spec.grid, network.spec.side
    pipeline = TorchPipeline(network, lambda image, view: pillow_input(rgb(image), side).numpy())
    prompted: set[int] = set()
    for t, (frame, truth) in enumerate(zip(*clip, strict=True)):
        plan = MemoryPlan() if t in prompts else reference_plan(t, prompted)
        look = Look(0, (View.full(640, 480, side),), plan, prompts.get(t))
        answers = pipeline.look(Image.from_array(frame, "rgb8"), [look])
        (candidates,) = answers.candidates(0)
        prompted |= prompts.keys() & {t}
        best = int(candidates.ious.argmax())
        present = candidates.presence_logit > 0
        pipeline.remember([Remembered(0, best, t, present)])
        mask = (answers.mask(0, best) > 0) & present
        rows, columns = np.nonzero(mask)
        box = (columns.min(), rows.min(), columns.max(), rows.max()) if present else (-1,) * 4
        if present:
            assert iou(candidates.box(best), Box.from_edges(*box[:2], box[2] + 1, box[3] + 1)) > 0.85
        lowres, memory = tap.logits, tap.memory.T.reshape(64, grid, grid)
        yield {
            "frame": t,
            "lowres": lowres,
            "lowres_s4": lowres[::4, ::4],
            "low_stats": [lowres.mean(), lowres.std(), lowres.max(), lowres.min()],
            "iou_all": np.append(candidates.ious, [np.nan] * (3 - len(candidates))),
            "best": best,
            "iou": candidates.ious[best],
            "score": candidates.presence_logit,
            "ptr": tap.pointer,
            "box": box,
            "area": mask.sum(),
            "true_iou": (mask & truth).sum() / (mask | truth).sum(),
            "mem_sample": memory[::4, :: grid // 4, :: grid // 4],
            "mem_stats": [memory.mean(), memory.std(), np.abs(memory).max()],
            "n_mem": len(plan.slots),
            "n_ptr": len(plan.pointer_slots),
        }


def assert_golden(name: str, frames: Iterable[dict]) -> None:
    """Every array stored for this clip, frame by frame."""
    with np.load(GOLDEN / f"video_{name}.npz") as file:
        stored = {key: file[key] for key in file.files}
    for t, (computed, _) in enumerate(zip(frames, stored["best"], strict=False)):
        for key, values in stored.items():
            value = np.asarray(computed[key])
            if key == "lowres":
                value = value[:: len(value) // values.shape[1], :: len(value) // values.shape[1]]
            np.testing.assert_allclose(
                value, values[t], atol=LIMITS.get(key, 0), rtol=0, err_msg=f"{name} frame {t} {key}"
            )


@pytest.fixture
def clip_frames(golden_network, golden_clip, pillow_input, monkeypatch):
    def run(case: str, frames: int | None = None) -> Iterator[dict]:
        clip = [part[:frames] for part in golden_clip(case == "absent")]
        prompts = {0: Prompt(mask=clip[1][0])} if case == "mask" else PROMPTS[case]
        return run_clip(golden_network("ti_512x512"), clip, prompts, pillow_input, monkeypatch)

    return run


def test_a_clip_until_the_memory_holds_its_seven_maps(clip_frames):
    """The back end that ships runs against the same numbers for a whole clip in test/reference."""
    assert_golden("ti_512x512_mask", clip_frames("mask", frames=8))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["mask", *PROMPTS])
def test_whole_clip(case, clip_frames):
    assert_golden(f"ti_512x512_{case}", clip_frames(case))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ti", "ti_1", "ti_2"])
def test_short_clip_at_1024(name, golden_network, golden_clip, pillow_input, monkeypatch):
    clip = [part[:4] for part in golden_clip(False)]
    frames = run_clip(golden_network(name), clip, PROMPTS["box"], pillow_input, monkeypatch)
    assert_golden(f"{name}_short", frames)
