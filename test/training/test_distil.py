"""Teaching an image encoder: norms that merge away, a run that learns and resumes, a start for training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from training_helpers import one_convolution

from efftam_ros.runtime.bundle import default_bundle
from training import distil as module
from training.distil import DistilOptions, distil
from training.norms import NormedConv, add_norms, merge_norms
from training.train import new_network

NARROW = "compact_192_narrow"
STEPS = 6


def say_nothing(step: int, summary: str) -> None:
    pass


def fresh_network():
    torch.manual_seed(3)
    return new_network(NARROW)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Path:
    return one_convolution(tmp_path_factory.mktemp("teacher") / "backbone.onnx")


@pytest.fixture(scope="module")
def options(archive, backbone, tmp_path_factory) -> DistilOptions:
    return DistilOptions(
        material=archive,
        out=tmp_path_factory.mktemp("runs") / "distilled",
        backbone=backbone,
        bundle=default_bundle().folder,
        steps=STEPS,
        images=4,
        rate=0.1,  # of which the warm-up lets little through
        seed=4,
        workers=0,
        threads=2,
    )


@pytest.fixture(scope="module")
def often():
    """Few images to measure and to test on; a checkpoint every other step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STATISTICS_IMAGES", 6)
        patch.setattr(module, "HELD_OUT_CLIPS", 4)
        patch.setattr(module, "SAVE_EVERY", 2)
        patch.setattr(module, "REPORT_EVERY", 1)
        yield


@pytest.fixture(scope="module")
def whole_run(options, often) -> Path:
    distil(options, fresh_network(), False, say_nothing)
    return options.out


def reports(folder: Path, kind: str) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


# Norms


def test_merged_norms_change_nothing_in_evaluation():
    torch.manual_seed(1)
    encoder = new_network(NARROW).image_encoder
    before = {name: tuple(value.shape) for name, value in encoder.state_dict().items()}
    add_norms(encoder, ("stem", "stages"))
    normed = [part for part in encoder.modules() if isinstance(part, NormedConv)]
    assert len(normed) > 40
    assert not isinstance(encoder.neck16, NormedConv)
    for part in normed:  # as if trained
        nn.init.uniform_(part.norm.weight, 0.5, 1.5)
        nn.init.normal_(part.norm.bias, std=0.2)
        part.norm.running_mean.normal_(std=0.1)
        part.norm.running_var.uniform_(0.05, 0.5)
    encoder.eval()
    image = torch.randn(2, 3, 192, 192)
    with torch.inference_mode():
        wanted = encoder.double()(image.double())
        merge_norms(encoder)
        found = encoder(image.double())
    assert {name: tuple(value.shape) for name, value in encoder.state_dict().items()} == before
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-9)


# A run


def test_the_student_comes_nearer_to_both_teachers(whole_run):
    first, last = reports(whole_run, "train")[0], reports(whole_run, "train")[-1]
    assert last["step"] == STEPS
    assert last["features"] < first["features"]
    assert last["backbone"] < first["backbone"]
    tested = reports(whole_run, "validation")
    assert [report["step"] for report in tested] == [2, 4, 6]
    assert all(0 < report["backbone"] < 2 for report in tested)


def test_a_resumed_run_gives_the_weights_of_an_uninterrupted_one(options, whole_run, tmp_path):
    stopped = replace(options, out=tmp_path / "stopped")

    def stop(step: int, summary: str) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distil(stopped, fresh_network(), False, stop)
    distil(stopped, new_network(NARROW), True, say_nothing)
    one, other = (torch.load(f / "weights.pt", weights_only=True)["model"] for f in (whole_run, stopped.out))
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.allclose(value, other[name], atol=1e-6), name
