"""Whole videos of the reference predictor, through export, onnxruntime, memory and tracker.

The recorded runs (test/golden/video_ti_512x512_*.npz) are those of the public EfficientTAM predictor with
artificial weights. The encoder's input is resized by Pillow, as the reference does, to meet the limits; what
our own resize costs is the last test.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golden.clip import BOX_EDGES, CLICK, clip
from support.scripted_target import one_target

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Frame, Image, Prompt
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline

PillowImage = pytest.importorskip("PIL.Image")
GOLDEN = Path(__file__).parent.parent / "golden"
FRAME_NS = 33_333_333


class Recorder(OrtPipeline):
    """The onnxruntime pipeline, keeping what the reference run recorded of every frame."""

    def __init__(self, folder: Path, pillow: bool = True) -> None:
        super().__init__(Bundle.load(folder), threads=2)
        self.pillow, self.rgb = pillow, None
        (self._target,) = self._targets
        self._by_opencv, self._target.preprocess = self._target.preprocess, self._resize_by_pillow
        self.frames: list[dict] = []

    def _resize_by_pillow(self, image, view):
        result = self._by_opencv(image, view)
        if self.pillow:
            side = self.spec.image_side
            small = np.asarray(PillowImage.fromarray(self.rgb).resize((side, side)), np.float32)
            mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
            result[0] = ((small / np.float32(255) - mean) / std).transpose(2, 0, 1)
        return result

    def _compute(self, image, frame):
        super()._compute(image, frame)
        plan, (found,) = frame.look.plan, frame.found
        self.frames.append(
            {
                "maps": len(plan.slots),
                "pointers": len(plan.pointer_slots),
                "ious": found.ious.copy(),
                "score": found.presence_logit,
            }
        )

    def _remember(self, chosen):
        super()._remember(chosen)
        frame, row, slot, present = chosen
        stored = self._target.memory.slots[slot]
        logits = self._target.answers["masks"].array[0, row]
        self.frames[-1].update(
            best=frame.rows.index(row),
            logits=logits.copy() if present else np.full((128, 128), -1024.0),
            pointer=stored["stored_pointer"].array[0].copy(),
            map=stored["map"].array[0].T.reshape(64, 32, 32).copy(),
        )


def run(folder: Path, name: str, pillow: bool = True):
    """Track the clip as the recorded run did; returns the recorder, the masks at image size and the true
    ones."""
    frames, truth = clip(dark=name == "absent")
    click = Prompt(points=(tuple(map(float, CLICK)),), labels=(1,))
    box = Prompt(box=Box.from_edges(*BOX_EDGES))
    first = {"click": click, "mask": Prompt(mask=truth[0])}.get(name, box)
    pipeline = Recorder(folder, pillow)
    tracker = one_target(pipeline, TrackerConfig(policy="efficienttam", view="full"))
    masks = []
    for i, rgb in enumerate(frames):
        pipeline.rgb = rgb
        track = tracker.step(Frame(Image.from_array(rgb, "rgb8"), i * FRAME_NS), None if i else first)
        tracker.remember()
        masks.append(tracker.mask() if track.measured else np.zeros(rgb.shape[:2], np.uint8))
    pipeline.close()
    return pipeline.frames, np.stack(masks) > 0, truth


@pytest.mark.slow
@pytest.mark.parametrize("name", ["box", "click", "mask", "absent"])
def test_the_whole_video_is_the_references(golden_bundle, name):
    want = np.load(GOLDEN / f"video_ti_512x512_{name}.npz")
    got, masks, _ = run(golden_bundle, name)
    assert [f["maps"] for f in got] == want["n_mem"].tolist()
    assert [f["pointers"] for f in got] == want["n_ptr"].tolist()
    for i, frame in enumerate(got):
        here = f"frame {i}"
        assert frame["pointer"] == pytest.approx(want["ptr"][i], abs=2e-5), here
        assert frame["logits"][::4, ::4] == pytest.approx(want["lowres_s4"][i], abs=2e-4), here
        assert frame["ious"][frame["best"]] == pytest.approx(want["iou"][i], abs=1e-5), here
        assert frame["score"] == pytest.approx(float(want["score"][i]), abs=5e-5), here
        assert frame["map"][::4, ::8, ::8] == pytest.approx(want["mem_sample"][i], abs=1e-2), here
        ys, xs = np.nonzero(masks[i])
        box = [xs.min(), ys.min(), xs.max(), ys.max()] if len(xs) else [-1] * 4
        assert box == want["box"][i].tolist(), here
        if "area" in want:
            assert len(xs) == want["area"][i], here


@pytest.mark.slow
def test_our_own_resize_costs_no_overlap(golden_bundle):
    """Against the reference's antialiased bicubic; artificial weights: this is about pixels, not accuracy."""
    _, ours, truth = run(golden_bundle, "box", pillow=False)
    _, theirs, _ = run(golden_bundle, "box")

    def overlap(a, b):
        return np.mean([(x & y).sum() / (x | y).sum() for x, y in zip(a, b, strict=True)])

    assert overlap(ours, theirs) > 0.99
    assert overlap(ours, truth) > overlap(theirs, truth) - 0.005


class PillowResized(Recorder):
    """The recorder's input without its records, which are of the 512 px network."""

    def _remember(self, chosen):
        OrtPipeline._remember(self, chosen)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["ti_1", "ti_2"])
def test_a_pooled_bundle_follows_the_reference(variant, tmp_path):
    """Exported with the golden weights, at 1024 px; four frames were recorded."""
    torch = pytest.importorskip("torch")
    from golden.weights import weights

    from efftam_workshop.export.onnx.bundle import export_bundle
    from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS
    from efftam_workshop.model.efficienttam.network import EfficientTAM

    network = EfficientTAM(CONFIGURATIONS[f"efficienttam_{variant}"]).eval()
    network.load_state_dict({name: torch.from_numpy(values) for name, values in weights("ti").items()})
    export_bundle(network, tmp_path / variant)
    want = np.load(GOLDEN / f"video_{variant}_short.npz")
    frames, truth = clip(dark=False)
    pipeline = PillowResized(tmp_path / variant)
    tracker = one_target(pipeline, TrackerConfig(policy="efficienttam", view="full"))
    for i in range(len(want["iou"])):
        pipeline.rgb = frames[i]
        prompt = Prompt(box=Box.from_edges(*BOX_EDGES)) if i == 0 else None
        tracker.step(Frame(Image.from_array(frames[i], "rgb8"), i * FRAME_NS), prompt)
        mask = tracker.mask() > 0
        ys, xs = np.nonzero(mask)
        assert [xs.min(), ys.min(), xs.max(), ys.max()] == want["box"][i].tolist(), f"frame {i}"
        overlap = (mask & truth[i]).sum() / (mask | truth[i]).sum()
        assert overlap == pytest.approx(float(want["true_iou"][i]), abs=1e-6), f"frame {i}"
    pipeline.close()
