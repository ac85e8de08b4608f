"""The command `efftam export`: a checkpoint in, a bundle and a parity table out; mistakes end in one line."""

from __future__ import annotations

import json

import pytest
import torch
from export_helpers import OFFICIAL_SIDE, golden_state

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
def official_checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "efficienttam_ti.pt"
    torch.save({"model": golden_state()}, path)
    return path


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


@pytest.mark.parametrize(
    ("name", "words"),
    [("efficienttam_s", "does not fit efficienttam_s: "), ("compact_192", "efficienttam_s_512x512")],
    ids=["other weights", "another command's network"],
)
def test_what_can_not_be_exported_is_refused_in_one_line(official_checkpoint, tmp_path, capsys, name, words):
    given = ["export", str(official_checkpoint), "--config", name, "--out", str(tmp_path / "bundle")]
    assert main(given) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert name in captured.err
    assert words in captured.err
    assert list(tmp_path.iterdir()) == []
