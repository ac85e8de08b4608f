"""A run's weights as the bundle that ships, alone or averaged with those it started from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from efftam_ros.core.errors import InputError
from efftam_workshop.export.onnx import bundle
from efftam_workshop.model.compact.network import CompactTAM
from efftam_workshop.model.loading import load_bundle_network
from training import ship as ship_module
from training.ship import OPEN_LICENCE, RESEARCH_LICENCE, average, require_open, ship

NAME = "compact_192"


def network(seed: int) -> CompactTAM:
    torch.manual_seed(seed)
    return CompactTAM().eval()


@pytest.fixture(scope="module", autouse=True)
def without_comparison() -> Iterator[None]:
    """The export's own comparison with PyTorch has its tests in test/export."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "compare_with_network", lambda *_: [])
        yield


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the network that the run started from."""
    folder = tmp_path_factory.mktemp("start") / "bundle"
    bundle.export_bundle(network(1), folder, weights="float16")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    torch.save({"model": network(2).state_dict()}, folder / "weights.pt")
    recipe = {"steps": 7, "hours": None, "seed": 3, "open_data_only": False}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("other", ["bundle", "run"])
def test_the_mean_with_a_bundle_or_a_run_is_that_of_each_weight(start, run, share, other):
    path = start if other == "bundle" else run / "weights.pt"
    mixed, own = network(3), network(3).state_dict()
    added = load_bundle_network(start).state_dict() if other == "bundle" else network(2).state_dict()
    average(mixed, path, share)
    for name, value in mixed.state_dict().items():
        expected = (1 - share) * own[name] + share * added[name] if value.is_floating_point() else own[name]
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(own["mask_decoder.tokens"], added["mask_decoder.tokens"])


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_outside_0_to_1_is_refused(run, start, tmp_path, share):
    with pytest.raises(InputError) as told:
        ship(run, tmp_path / "out", start, share)
    assert f"{share}" in str(told.value)


def test_the_shipped_bundle_says_what_it_is_and_keeps_its_card(run, start, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(start, out)
    (out / "README.md").write_text("the card")
    size = ship(run, out, mean_with=out)
    assert (out / "README.md").read_text() == "the card"
    assert size == sum(path.stat().st_size for path in out.iterdir())
    note = json.loads((out / "bundle.json").read_text())["source"]["note"]
    assert "7 steps" in note
    assert "seed 3" in note
    assert "mean" in note
    shipped, own = load_bundle_network(out).state_dict(), network(2).state_dict()
    other = load_bundle_network(start).state_dict()["mask_decoder.tokens"]
    expected = (own["mask_decoder.tokens"] + other) / 2
    assert torch.allclose(shipped["mask_decoder.tokens"], expected, atol=1e-3)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(InputError) as told:
        ship(tmp_path, tmp_path / "out")
    assert str(tmp_path) in str(told.value)
    assert not (tmp_path / "out").exists()


# Open data


def licensed(folder: Path, licence: str) -> Path:
    manifest = json.loads((folder / "bundle.json").read_text())
    manifest["source"]["licence"] = licence
    (folder / "bundle.json").write_text(json.dumps(manifest))
    return folder


def recipe_of(run: Path, **changes: object) -> Path:
    path = run / "recipe.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return run


def test_weights_count_as_open_only_where_they_say_so(run, start, tmp_path):
    bundle_folder = shutil.copytree(start, tmp_path / "bundle")
    require_open(licensed(bundle_folder, OPEN_LICENCE))
    require_open(recipe_of(run, open_data_only=True) / "weights.pt")
    unknown = tmp_path / "unknown.pt"
    shutil.copy(run / "weights.pt", unknown)
    for other in (
        licensed(bundle_folder, RESEARCH_LICENCE),
        recipe_of(run, open_data_only=False) / "weights.pt",
        unknown,
    ):
        with pytest.raises(InputError) as told:
            require_open(other)
        assert str(other) in str(told.value)


def test_the_weights_in_the_source_tree_are_open_and_can_be_trained_on():
    folder = Path(ship_module.__file__).parent / "open_data"
    require_open(folder)
    assert load_bundle_network(folder).spec.name == NAME


def test_a_mean_with_weights_for_research_is_not_called_open(run, start, tmp_path):
    recipe_of(run, open_data_only=True)
    research = licensed(shutil.copytree(start, tmp_path / "research"), RESEARCH_LICENCE)
    with pytest.raises(InputError):
        ship(run, tmp_path / "out", research)
    ship(run, tmp_path / "out", licensed(research, OPEN_LICENCE))
    assert json.loads((tmp_path / "out" / "bundle.json").read_text())["source"]["licence"] == OPEN_LICENCE
