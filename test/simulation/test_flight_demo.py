"""`python -m simulation flight` as a stranger runs it."""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import simulation.flight
import simulation.processes
from simulation.__main__ import main
from simulation.processes import SIMULATION, Processes, ended_together

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "simulation", "flight"]
SMALL = ["--fps", "15", "--size", "320x180", "--quiet"]
NEEDS = ("panda3d", "pymavlink", "rclpy", "efftam_ros.msg", "av", "matplotlib")
flies = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDS),
    reason=f"flying needs {', '.join(NEEDS)}; scripts/setup_env brings them",
)


def run(*arguments: str, code: str = "") -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *arguments] if code else [*COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=ROOT)


@flies
@pytest.mark.ros
@pytest.mark.slow
def test_the_gimbal_follows_and_video_plot_and_summary_are_left(tmp_path):
    import av

    done = run("--seconds", "8", "--autopilot", "ardupilot", "--out", str(tmp_path), *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["figure", "measured"]
    assert "angle from the image's middle" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["flight.mp4", "logs", "summary.json", "tracks.png"]
    report = json.loads((tmp_path / "summary.json").read_text())
    assert report["asked"]["autopilot"] == "ardupilot"
    found = report["figures"]
    # A gimbal that stands still is 30 degrees behind by then.
    assert found["off_axis_rms_deg"] < 12.0
    assert found["tracking_s"] > 1.0
    assert found["images_per_s"] < 15.5  # the camera's rate; fewer on a slow computer
    assert set(found["cpu_percent"]) == {"tracker", "gimbal", "bridge", "simulation"}
    with av.open(str(tmp_path / "flight.mp4")) as video:
        frames = [frame.to_ndarray(format="bgr24") for frame in video.decode(video=0)]
    assert frames[0].shape == (180, 320, 3)
    assert len(frames) > 60


def repeats(line: str, path: Path) -> list[str]:
    """A process that prints ``line`` five times a second, and at SIGINT writes the time into ``path``."""
    code = (
        "import pathlib, signal, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        f"print({line!r}, flush=True)\n"
        f"while signal.sigtimedwait({{signal.SIGINT}}, 0.2) is None: print({line!r}, flush=True)\n"
        f"pathlib.Path({str(path)!r}).write_text(str(time.monotonic()))"
    )
    return [sys.executable, "-c", code]


def test_the_nodes_end_while_the_simulation_still_sends(tmp_path):
    ended = json.dumps({"phase": "ended", "seconds": 0.0})
    with ended_together(Processes(tmp_path)) as processes:
        processes.start("bridge", repeats("on", tmp_path / "bridge"))
        while not (tmp_path / "bridge.log").read_text():
            time.sleep(0.05)
        processes.start(SIMULATION, repeats(ended, tmp_path / "simulation"))
        assert {phase for phase, _ in processes.words()} == {"ended"}
    bridge_s, simulation_s = (float((tmp_path / name).read_text()) for name in ("bridge", "simulation"))
    assert bridge_s < simulation_s


@pytest.mark.parametrize(
    ("options", "lines"),
    [([], ["flight: by hand", "flight: following, 60 s"]), (["--quiet"], [])],
)
def test_where_no_bar_is_shown_each_phase_is_one_line(options, lines, monkeypatch, tmp_path, capsys):
    phases = [("by hand", 0.0), ("by hand", 0.2), ("following", 0.0), ("following", 0.2)]

    class Flown(Processes):
        def start(self, name, command):
            pass

        def words(self):
            return iter(phases)

    monkeypatch.setattr(simulation.processes, "Processes", Flown)
    parser = argparse.ArgumentParser()
    simulation.flight.add_arguments(parser)
    simulation.flight._fly(parser.parse_args([*options, "--out", str(tmp_path)]), tmp_path)
    assert capsys.readouterr().err.splitlines() == lines


@flies
@pytest.mark.ros
def test_a_signal_ends_every_process_and_leaves_no_pictures(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "--out", str(tmp_path), *SMALL],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    end_s = time.monotonic() + 60
    while not list(tmp_path.glob(".pictures.*/*.jpg")):
        assert time.monotonic() < end_s, "no picture"
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert [p.name for p in tmp_path.iterdir()] == ["logs"]
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(p)]
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("missing", ["panda3d", "pymavlink", "rclpy", "efftam_ros.msg"])
def test_what_is_missing_is_named_with_its_remedy_in_one_line(tmp_path, missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from simulation.__main__ import main; sys.exit(main(['flight', *sys.argv[1:]]))"
    )
    done = run("--out", str(tmp_path / "new"), code=code)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert missing in line
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--seconds", "1"], "--seconds is 1"),
        (["--seconds", "nan"], "--seconds is nan"),
        (["--fps", "0"], "--fps is 0"),
        (["--size", "640"], "640x360"),
        (["--size", "64x36"], "160x90"),
        (["--autopilot", "betaflight"], "px4"),
    ],
)
def test_wrong_options_are_refused_in_one_line(arguments, word, capsys):
    assert main(["flight", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert word in line


@flies
def test_a_bundle_that_is_none_is_refused_before_anything_starts(tmp_path):
    done = run("--bundle", str(tmp_path), "--out", str(tmp_path / "out"), *SMALL)
    assert done.returncode == 2
    assert "bundle" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@flies
@pytest.mark.ros
def test_a_tracker_that_can_not_start_ends_the_demo_with_what_it_said(tmp_path):
    done = run("--backend", "tensorrt", "--out", str(tmp_path), *SMALL)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "tracker" in line
    assert "backend:=onnxruntime-cpu" in line
    assert [p.name for p in tmp_path.iterdir()] == ["logs"]
