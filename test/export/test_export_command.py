"""The command `efftam export`: a checkpoint in, a bundle and a parity table out; mistakes end in one line."""

from __future__ import annotations

import json

import pytest
import torch
from export_helpers import OFFICIAL_SIDE, compact_network, golden_state

from efftam_ros.runtime.bundle import Bundle
from efftam_ros.tools.cli import main
from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS, Configuration

SMALL = "efficienttam_ti_small"


@pytest.fixture(autouse=True)
def _small_is_known(monkeypatch):
    """An official network on a small input, so that its export takes seconds."""
    monkeypatch.setitem(CONFIGURATIONS, SMALL, Configuration(SMALL, OFFICIAL_SIDE, 192, 3))


@pytest.fixture(scope="module")
def compact_checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "compact.pt"
    torch.save({"model": compact_network().state_dict()}, path)
    return path


@pytest.fixture(scope="module")
def official_checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "efficienttam_ti.pt"
    torch.save({"model": golden_state()}, path)
    return path


def complaint(capsys, *arguments) -> str:
    """Run the command, expect exit code 2 and one line on stderr; returns the line."""
    assert main(["export", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


def test_exports_a_checkpoint_and_prints_the_parity_table(official_checkpoint, tmp_path, capsys):
    out = tmp_path / "new" / "folder" / "bundle"
    arguments = ["export", str(official_checkpoint), "--config", SMALL, "--out", str(out)]
    assert main([*arguments, "--licence", "CC0-1.0", "--note", "seeded"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["graph", "output", "max_abs", "largest", "value", "worst", "case"]
    assert any(line.startswith("mask_decoder") and " masks " in line for line in lines)
    assert any(line.startswith("chained clip") for line in lines)
    bundle = Bundle.load(out)
    assert bundle.source["licence"] == "CC0-1.0"
    assert bundle.source["note"] == "seeded"
    assert len(bundle.source["checkpoint_sha256"]) == 64


def test_json_is_for_machines(official_checkpoint, tmp_path, capsys):
    out = tmp_path / "bundle"
    arguments = ["export", str(official_checkpoint), "--config", SMALL, "--out", str(out)]
    assert main([*arguments, "--weights", "float16", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["bundle"] == str(out)
    assert result["bytes"] == sum(path.stat().st_size for path in out.iterdir())
    assert all(row["max_abs"] <= 1e-3 for row in result["parity"])
    assert captured.err == ""


def test_a_checkpoint_of_another_network_is_refused(
    compact_checkpoint, official_checkpoint, tmp_path, capsys
):
    out = tmp_path / "bundle"
    line = complaint(capsys, compact_checkpoint, "--config", "efficienttam_ti", "--out", out)
    assert "does not fit efficienttam_ti" in line
    assert "use the official efficienttam_ti.pt" in line
    line = complaint(capsys, official_checkpoint, "--config", "efficienttam_s", "--out", out)
    assert "trunk of width 192, but efficienttam_s has 384" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["efficienttam", "compact_192"])
def test_an_unknown_configuration_is_refused_with_the_known_ones(official_checkpoint, tmp_path, capsys, name):
    line = complaint(capsys, official_checkpoint, "--config", name, "--out", tmp_path / "bundle")
    assert f"there is no EfficientTAM configuration {name!r}; choose one of efficienttam_ti" in line


def test_a_missing_or_incomplete_checkpoint_is_refused(official_checkpoint, tmp_path, capsys):
    line = complaint(capsys, tmp_path / "no.pt", "--config", SMALL, "--out", tmp_path / "bundle")
    assert "no.pt" in line
    state = dict(torch.load(official_checkpoint)["model"])
    name = sorted(state)[0]
    del state[name]
    torch.save({"model": state}, tmp_path / "part.pt")
    line = complaint(capsys, tmp_path / "part.pt", "--config", SMALL, "--out", tmp_path / "bundle")
    assert f"does not fit {SMALL}: 1 tensors missing ({name})" in line


def test_nothing_is_written_over_other_files(official_checkpoint, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("keep")
    line = complaint(capsys, official_checkpoint, "--config", SMALL, "--out", tmp_path)
    assert "holds other files and no bundle" in line
