"""The command `efftam export`: a checkpoint in, a bundle and a parity table out; mistakes end in one line."""

from __future__ import annotations

import json

import pytest
import torch
from export_helpers import OFFICIAL_SIDE, compact_network, golden_state

from efftam_ros.runtime.bundle import Bundle
from efftam_ros.tools.cli import main
from efftam_workshop.agreement.compare import GraphDeviation
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


def test_exports_a_checkpoint_and_prints_json_or_the_parity_table(
    official_checkpoint, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "new" / "folder" / "bundle"
    arguments = ["export", str(official_checkpoint), "--config", SMALL, "--out", str(out)]
    arguments += ["--weights", "float16", "--licence", "CC0-1.0", "--note", "seeded"]
    assert main([*arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    result = json.loads(captured.out)
    assert result["bundle"] == str(out)
    assert result["bytes"] == sum(path.stat().st_size for path in out.iterdir())
    assert all(row["max_abs"] <= 1e-3 for row in result["parity"])
    source = Bundle.load(out).source
    assert (source["licence"], source["note"]) == ("CC0-1.0", "seeded")
    assert len(source["checkpoint_sha256"]) == 64

    found = [GraphDeviation(**row) for row in result["parity"]]
    monkeypatch.setattr("efftam_workshop.export.onnx.bundle.export_bundle", lambda *_, **__: found)
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["graph", "output", "max_abs", "largest", "value", "worst", "case"]
    assert any(line.startswith("mask_decoder") and " masks " in line for line in lines)


def test_a_checkpoint_that_is_missing_or_of_another_network_is_refused(
    compact_checkpoint, official_checkpoint, tmp_path, capsys
):
    out = tmp_path / "bundle"
    for path, name in ((compact_checkpoint, SMALL), (official_checkpoint, "efficienttam_s")):
        assert f"does not fit {name}: " in complaint(capsys, path, "--config", name, "--out", out)
    assert "no.pt" in complaint(capsys, tmp_path / "no.pt", "--config", SMALL, "--out", out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["efficienttam", "compact_192"])
def test_an_unknown_configuration_is_refused_with_the_known_ones(official_checkpoint, tmp_path, capsys, name):
    line = complaint(capsys, official_checkpoint, "--config", name, "--out", tmp_path / "bundle")
    assert repr(name) in line
    assert "efficienttam_s_512x512" in line


def test_nothing_is_written_over_other_files(official_checkpoint, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("keep")
    line = complaint(capsys, official_checkpoint, "--config", SMALL, "--out", tmp_path)
    assert "holds other files and no bundle" in line
