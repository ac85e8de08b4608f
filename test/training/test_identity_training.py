"""Training of the identity network, on a few pictures made here."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image
from efftam_ros.runtime.identity import Identity
from training.__main__ import main
from training.identity.crops import is_held_out, load_pictures
from training.identity.data import COLUMNS, Archive
from training.identity.judge import area_under_curve, load_network, share_found
from training.identity.network import SIDE, IdentityNetwork

GROUPS = 40
GOLDEN = ["made/g3", "made/g8", "made/g22", "made/g28", "made/g33"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two objects of each footage, three views of each: a colour with noise."""
    out, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    with Archive(out, "made", COLUMNS) as archive:
        for group in range(GROUPS):
            for name in "ab":
                colour = rng.integers(30, 220, 3)
                for view in range(3):
                    noise = rng.normal(0, 12, (40, 30, 3))
                    picture = np.clip(colour + noise, 0, 255).astype(np.uint8)
                    row = [f"g{group}", name, view, 5, 5, 20, 30, "person", 30, 40, 0]
                    archive.add(f"g{group}/{name}/{view}.jpg", picture, row)
    with Archive(out, "images", ("file", "source")) as archive:
        for number in range(4):
            archive.add(f"{number}.jpg", rng.integers(0, 255, (60, 80, 3)).astype(np.uint8), ["made"])
    return out


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert main([*train(data, out), "--steps", "3"]) == 0
    return out


def train(data: Path, out: Path) -> list[str]:
    words = ["identity", "train", "--data", str(data), "--out", str(out)]
    return [*words, "--objects", "8", "--width", "4"]


def test_a_run_leaves_weights_recipe_and_a_report_that_any_reader_of_json_takes(run: Path):
    recipe, report = (json.loads((run / f"{name}.json").read_text()) for name in ("recipe", "report"))
    assert (recipe["steps_done"], recipe["width"]) == (3, 4)
    assert report["step"] == 3
    assert 0 <= report["area"] <= 1
    assert "NaN" not in (run / "report.json").read_text()


def test_a_run_goes_on_from_its_last_checkpoint(run: Path, data: Path, tmp_path: Path, capsys):
    assert main([*train(data, tmp_path), "--steps", "2"]) == 0
    before = load_network(tmp_path).state_dict()
    assert main([*train(data, tmp_path), "--steps", "4", "--resume"]) == 0
    assert json.loads((tmp_path / "recipe.json").read_text())["steps_done"] == 4
    after = load_network(tmp_path).state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert main([*train(data, tmp_path / "none"), "--resume"]) == 2
    assert "--resume" in capsys.readouterr().err


def test_the_exported_network_gives_the_vectors_of_the_trained_one(run: Path, tmp_path: Path):
    assert main(["identity", "export", "--run", str(run), "--out", str(tmp_path), "--licence", "none"]) == 0
    crops = np.random.default_rng(1).integers(0, 255, (3, SIDE, SIDE, 3)).astype(np.uint8)
    (found,) = onnxruntime.InferenceSession(tmp_path / "identity.onnx").run(None, {"crops": crops})
    with torch.no_grad():
        expected = load_network(run)(torch.from_numpy(crops).permute(0, 3, 1, 2).float()).numpy()
    assert (found * expected).sum(1).min() > 0.999
    whole = Box(0.0, 0.0, SIDE, SIDE)
    (same,) = Identity(tmp_path).describe(Image.from_array(crops[0]), [whole])
    assert np.allclose(same, found[0], atol=1e-5)


def test_the_judge_says_the_same_of_a_runs_weights_and_of_the_network_made_of_them(
    run: Path, data: Path, tmp_path: Path, capsys
):
    main(["identity", "export", "--run", str(run), "--out", str(tmp_path)])
    areas = []
    for words in (["--run", str(run)], ["--network", str(tmp_path / "identity.onnx")]):
        file = tmp_path / "figures.json"
        assert main(["identity", "judge", "--data", str(data), *words, "--json", str(file)]) == 0
        assert "area" in capsys.readouterr().out
        areas.append(json.loads(file.read_text())["area"])
    assert areas[0] == pytest.approx(areas[1], abs=0.02)


def test_a_wider_network_starts_where_a_narrower_one_ended(run: Path):
    narrow, wide = load_network(run), IdentityNetwork(width=8)
    wide.start_from(narrow.state_dict())
    pixels = 255 * torch.rand(4, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(wide.eval()(pixels), narrow(pixels), atol=1e-5)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["judge", "--data", "DATA", "--run", "nowhere"], "nowhere"),
        (["judge", "--data", "DATA", "--network", "nowhere.onnx"], "nowhere.onnx"),
        (["judge", "--data", "nowhere"], "identity data"),
        (["export", "--run", "nowhere"], "--run"),
        (["train", "--data", "nowhere"], "identity data"),
        (["train", "--teacher", "nowhere.onnx"], "nowhere.onnx"),
    ],
)
def test_what_is_not_there_is_named(words: list[str], named: str, data: Path, tmp_path: Path, capsys):
    words = [str(data) if word == "DATA" else word for word in words]
    words += ["--out", str(tmp_path)] if words[0] != "judge" else []
    assert main(["identity", *words]) == 2
    assert named in capsys.readouterr().err


def test_the_same_footage_is_held_out_in_each_run(data: Path):
    """By its name: golden, so that no run trains on what another one was judged on."""
    held = [f"made/g{number}" for number in range(GROUPS) if is_held_out(f"made/g{number}")]
    assert held == GOLDEN
    pictures = load_pictures(data)
    with (data / "made.csv").open(newline="") as file:
        groups = [f"made/{row['group']}" for row in csv.DictReader(file)]
    assert {group for group, is_held in zip(groups, pictures.held, strict=True) if is_held} == set(held)


def test_figures_of_the_judge():
    right, wrong = np.array([0.9, 0.8, 0.7, 0.6]), np.array([0.65, 0.1])
    assert area_under_curve(right, wrong) == pytest.approx(7 / 8)
    assert share_found(right, wrong, 0.01) == 0.5
    assert np.isnan(area_under_curve(right, wrong[:0]))
