"""A trunk with fewer blocks: what is kept of the longer one, and what the other blocks learn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from efftam_ros.runtime.bundle import default_bundle
from efftam_workshop.model.compact.network import COMPACT_CONFIGS, CompactTAM
from efftam_workshop.model.loading import load_bundle_network
from training import shorten as module
from training.__main__ import main
from training.shorten import ShortenOptions, shorten

SHIPPED = COMPACT_CONFIGS["compact_192"]
SHORTER = replace(SHIPPED.spec, name="test")
KEPT = 4  # stages
IMAGES, STEPS = 8, 12


def shorter_network() -> CompactTAM:
    """The shipped network without some of its blocks after stride 8."""
    stages = SHIPPED.trunk.stages
    fewer = tuple(replace(stage, blocks=1) for stage in stages[KEPT:])
    torch.manual_seed(3)
    trunk = replace(SHIPPED.trunk, stages=(*stages[:KEPT], *fewer))
    return CompactTAM(replace(SHIPPED, spec=SHORTER, trunk=trunk))


@pytest.fixture(scope="module")
def teacher() -> CompactTAM:
    return load_bundle_network(default_bundle().folder).eval()


@pytest.fixture(scope="module")
def shortened(archive, tmp_path_factory) -> tuple[CompactTAM, Path, list[int]]:
    """The network after a short run, the run's folder, and the progress that was told."""
    told: list[int] = []
    network = shorter_network()
    options = ShortenOptions(
        material=archive,
        out=tmp_path_factory.mktemp("runs") / "shortened",
        bundle=default_bundle().folder,
        images=IMAGES,
        steps=STEPS,
        batch=4,
        rate=0.1,  # of which the warm-up lets little through
        workers=0,
        threads=2,
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"HELD_OUT_CLIPS": 2, "CLIPS": 2, "SAVE_EVERY": 4, "REPORT_EVERY": 1}.items():
            patch.setattr(module, name, value)
        shorten(options, network, lambda done, summary: told.append(done))
    return network, options.out, told


def reports(folder: Path, kind: str) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def test_the_later_stages_come_nearer_to_the_longer_trunk(shortened):
    tested = reports(shortened[1], "validation")
    assert [report["step"] for report in tested] == [4, 8, 12]
    assert tested[-1]["features"] < tested[0]["features"]
    assert tested[-1]["trunk"] < tested[0]["trunk"]
    assert [report["step"] for report in reports(shortened[1], "train")] == list(range(1, STEPS + 1))


def test_all_but_the_later_stages_is_the_bundles(shortened, teacher):
    found, wanted = shortened[0].state_dict(), teacher.state_dict()
    learned = [f"image_encoder.stages.{index}." for index in range(KEPT, len(SHIPPED.trunk.stages))]
    learned += ["image_encoder.neck16.", "image_encoder.neck32."]
    kept = {name: value for name, value in found.items() if not name.startswith(tuple(learned))}
    assert 150 < len(kept) < len(found)
    for name, value in kept.items():
        torch.testing.assert_close(value, wanted[name], rtol=1e-3, atol=1e-4, msg=name)
    assert not torch.equal(found["image_encoder.neck16.weight"], wanted["image_encoder.neck16.weight"])


def test_a_run_goes_on_from_the_weights_of_an_earlier_one(shortened, archive, tmp_path, monkeypatch):
    for name, value in {"HELD_OUT_CLIPS": 1, "CLIPS": 1}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setitem(COMPACT_CONFIGS, "test", replace(shortened[0].config, spec=SHORTER))
    earlier = torch.load(shortened[1] / "weights.pt", weights_only=True)["model"]
    options = ShortenOptions(
        material=archive,
        out=tmp_path / "longer",
        bundle=default_bundle().folder,
        continue_from=shortened[1] / "weights.pt",
        images=2,
        steps=1,
        batch=1,
        rate=1e-9,  # nothing is learned
        workers=0,
    )
    network = CompactTAM(COMPACT_CONFIGS["test"])
    shorten(options, network, lambda done, summary: None)
    learned = [f"image_encoder.stages.{KEPT}.0.project.weight", "image_encoder.neck32.bias"]
    for name in learned:
        torch.testing.assert_close(network.state_dict()[name], earlier[name], rtol=0, atol=1e-6)
    recipe = json.loads((options.out / "recipe.json").read_text())
    assert recipe["continue_from"] == str(options.continue_from)


def test_a_bundle_whose_trunk_begins_differently_is_refused(archive, tmp_path, capsys):
    given = ["shorten", "--bundle", default_bundle().folder, "--material", archive, "--out", tmp_path]
    assert main([*map(str, given), "--config", "compact_192_narrow"]) == 2
    assert "begin alike" in capsys.readouterr().err
