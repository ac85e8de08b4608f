"""efftam profile --timeline on the fake GPU: what overlaps, and what a frame costs beside its modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings.driver", reason="the fake GPU takes its names from cuda-bindings")

from support.desk_check import ORIN_NX, RTX_4090, Board, estimated_rig

from efftam_ros.runtime.bundle import default_bundle
from efftam_ros.tools.cli import main

pytestmark = pytest.mark.usefixtures("scene_made_once")

PYTHON_SHARE = 0.55
FRAMES = 6


def recorded(board: Board, monkeypatch: Any, folder: Path, share: float = PYTHON_SHARE) -> dict[str, Any]:
    rig = estimated_rig(default_bundle(), board, monkeypatch, share)
    contenders = "efftam_ros.tools.bench.contenders"
    monkeypatch.setattr(f"{contenders}.open_measurable", lambda *_: rig.pipeline)
    timeline = "efftam_ros.tools.profile.timeline"
    monkeypatch.setattr(f"{timeline}.host_ms", lambda: rig.gpu.scheduler.host_ms)
    monkeypatch.setattr(f"{timeline}.WARM_UP", 4)
    command = ["profile", "--backend", "tensorrt", "--view", "full", "--frames", str(FRAMES), "--quiet"]
    files = ["--timeline", str(folder / "t.png"), "--json", str(folder / "t.json")]
    assert main([*command, *files]) == 0
    return json.loads((folder / "t.json").read_text())


@pytest.mark.parametrize(("board", "goal"), [(RTX_4090, 1.15), (ORIN_NX, 1.05)], ids=["RTX 4090", "Orin NX"])
def test_a_frame_takes_little_more_than_its_modules(
    board: Board, goal: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = recorded(board, monkeypatch, tmp_path)
    assert found["ratio"] <= goal
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_waste_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    """The same frame with four times the Python; the text names every stage in its lane."""
    wasteful = recorded(RTX_4090, monkeypatch, tmp_path, share=4 * PYTHON_SHARE)
    assert wasteful["ratio"] > 1.15
    lines = capsys.readouterr().out.splitlines()
    for lane, name in (
        ("host", "decode"),
        ("GPU, network", "memory_attention"),
        ("GPU, network", "memory_encoder"),
        ("GPU, images", "preprocess"),
    ):
        assert any(line.startswith(lane) and name in line and "|" in line for line in lines), name


def test_the_next_image_goes_up_beside_the_memory_encoder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spans = recorded(ORIN_NX, monkeypatch, tmp_path)["spans"]
    encoders, images = (
        [(s["start_ms"], s["end_ms"]) for s in spans if s["name"] == name]
        for name in ("memory_encoder", "preprocess")
    )
    assert any(start < image[0] < end for start, end in encoders for image in images)


@pytest.mark.parametrize("backend", ["onnxruntime-cpu", "tensorrt,tensorrt-fp32"])
def test_needs_one_back_end_on_a_gpu(backend: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["profile", "--backend", backend, "--timeline", str(tmp_path / "t.png")]) == 2
    error = capsys.readouterr().err
    assert backend in error
    assert "tensorrt" in error
    assert not (tmp_path / "t.png").exists()
