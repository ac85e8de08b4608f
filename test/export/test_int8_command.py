"""`efftam build --precision int8 --sequences`, from the command line to engines or a refusal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import rehearsal
from support.clip import clip, write_sequence
from test_engines import ROOT, Workshop, coarse

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.device import opening
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.tools import cli
from efftam_workshop import build
from efftam_workshop.agreement import reference
from efftam_workshop.export import int8
from efftam_workshop.export.tensorrt import trials

SIZE, FPS = (480, 272), 10.0


@pytest.fixture(scope="module")
def sequence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few frames of the shipped clip with their boxes."""
    return write_sequence(tmp_path_factory.mktemp("sequences") / "car", clip(120, SIZE)[60::10], FPS)


Command = Callable[..., int]


@pytest.fixture
def command(tmp_path: Path, sequence: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process, on a machine of fakes, calibrated with three frames of the sequence; its
    engines go to ``tmp_path / "engines"``."""
    workshop = Workshop(tmp_path / "engines")
    monkeypatch.setattr(Cuda, "load", lambda: workshop.cuda)
    monkeypatch.setattr("efftam_ros.runtime.tensorrt.library.load_library", lambda: workshop.library)
    monkeypatch.setattr(opening, "engine_folder", lambda: workshop.folder)
    for module in (build, reference):
        monkeypatch.setattr(module, "CLIP_FRAMES", 3)

    def run(*arguments: object) -> int:
        given = ["build", "--precision", "int8", "--calibration", sequence, "--quiet", *arguments]
        return cli.main([str(argument) for argument in given])

    return run


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """The last line on stderr has all these words."""
    *_, last = capsys.readouterr().err.splitlines()
    for word in words:
        assert word in last


def test_costs_that_are_too_high_are_refused_before_anything_is_built(
    command: Command,
    sequence: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(int8, "quantize", coarse(400))
    monkeypatch.setattr(trials, "build_engine", lambda *_, **__: pytest.fail("built"))
    assert command("--sequences", sequence) == 2
    refusal(capsys, "INT8 costs", "of AO (0.005 is the limit)", "calibrate on other footage", "fp16")
    assert list((tmp_path / "engines").glob("*.engine")) == []
    assert list((tmp_path / "engines").glob("*.calibration.json")) == []


@pytest.mark.parametrize(
    ("option", "names", "words"),
    [
        ("--sequences", (), "holds no sequence"),
        ("--calibration", ("a", "b"), "has 2 sequences (a, b); name one of them"),
    ],
)
def test_sequences_that_can_not_be_read_are_refused_before_anything_is_built(
    command: Command,
    sequence: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    option: str,
    names: tuple[str, ...],
    words: str,
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    for name in names:
        shutil.copytree(sequence, folder / name)
    assert command(option, folder) == 2
    refusal(capsys, str(folder), words)
    assert list((tmp_path / "engines").glob("*")) == []


def test_without_a_gpu_nothing_is_measured(
    command: Command, sequence: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tracking the sequences takes minutes: what can't be built is refused first."""
    monkeypatch.undo()
    monkeypatch.setattr("efftam_ros.runtime.tensorrt.library.load_library", lambda: None)
    monkeypatch.setattr("efftam_workshop.eval.int8.cost_of_int8", lambda *_: pytest.fail("measured"))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    monkeypatch.setattr("efftam_ros.runtime.cuda.api.has_driver", lambda: True)
    assert command("--sequences", sequence) == 2
    refusal(capsys, "cuda-bindings can't be imported", "pip install")


@pytest.mark.slow
def test_engines_are_built_where_int8_costs_nothing(sequence: Path, tmp_path: Path) -> None:
    """As a process on a board of fakes, from accuracy on the CPU to engines with their calibration."""
    env = {**os.environ, **rehearsal.environment(tmp_path, ROOT)}
    command = [sys.executable, "-m", "efftam_ros", "build", "--precision", "int8", "--json"]
    done = subprocess.run(
        [*command, "--calibration", str(sequence), "--sequences", str(sequence)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "INT8 with Q/DQ on the CPU, 1 sequence: AO 0." in done.stderr
    report = json.loads(done.stdout)
    assert set(report["engines"]) == set(GRAPHS)
    attention = report["engines"]["memory_attention_fixed"]
    assert set(attention["times_ms"]) == {"fused_fp32", "unfused_fp32", "int8"}
    kept = attention["form"] == "int8"
    assert kept or "INT8 must save 8%" in attention["rejected"][-1]
    folder = tmp_path / "engines"
    assert len(list(folder.glob("compact_192-*-int8-*.engine"))) == len(GRAPHS)
    calibration = json.loads((folder / "compact_192-int8.calibration.json").read_text())
    assert (calibration["clip"], calibration["frames"]) == ("car", rehearsal.CLIP_FRAMES)
