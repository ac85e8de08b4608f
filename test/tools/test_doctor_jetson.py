"""`efftam doctor --jetson` and `--report`: each row from the files of a board, and what a report holds."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from efftam_ros.runtime.device import opening
from efftam_ros.tools.doctor import jetson
from efftam_ros.tools.doctor.jetson import jetson_findings

STATUS = """\
Package: cuda-cudart-12-6
Status: install ok installed
Version: 12.6.68-1

Package: libcudnn9-cuda-12
Status: install ok installed
Version: 9.3.0.75-1

Package: libnvinfer10
Status: {state}
Version: 10.3.0.30-1+cuda12.5
"""


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """An Orin with JetPack 6.2 in its fastest mode."""
    files = {
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic",
        "var/lib/dpkg/status": STATUS.format(state="install ok installed"),
        "var/lib/nvpmodel/status": "pmode:0002",
        "etc/nvpmodel.conf": "< POWER_MODEL ID=1 NAME=25W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >",
        "sys/class/devfreq/17000000.gpu/min_freq": "1020000000",
        "sys/class/devfreq/17000000.gpu/max_freq": "1020000000",
        "proc/meminfo": "MemTotal: 7800000 kB\nMemAvailable: 5000000 kB\nSwapTotal: 8000000 kB\n",
        "dev/video0": "",
        jetson.ARGUS: "",
        "tmp/argus_socket": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def rows(root: Path) -> dict[str, tuple[str, str, str]]:
    return {found.name: (found.state, found.found, found.remedy) for found in jetson_findings(root)}


def test_off_a_jetson_it_says_so_and_nothing_else(tmp_path: Path) -> None:
    assert list(rows(tmp_path)) == ["JetPack"]


def test_a_board_that_is_ready(board: Path) -> None:
    found = rows(board)
    assert found["JetPack"][:2] == ("ok", "6 (L4T 36.4.3)")
    assert found["TensorRT"][:2] == ("ok", "libnvinfer10 10.3.0.30-1+cuda12.5")
    of_this_python = {"Python", "import tensorrt", "onnxruntime-gpu", "Fast DDS profile"}
    assert {
        name: state for name, (state, *_) in found.items() if name not in of_this_python and state != "ok"
    } == {}


@pytest.mark.parametrize(
    ("file", "text", "row", "state", "remedy"),
    [
        ("etc/nv_tegra_release", "# R35 (release), REVISION: 4.1", "JetPack", "wrong", "JetPack 6"),
        (
            "var/lib/dpkg/status",
            STATUS.format(state="deinstall ok config-files"),
            "TensorRT",
            "wrong",
            "apt install",
        ),
        ("var/lib/nvpmodel/status", "pmode:0001", "power mode", "absent", "nvpmodel -m 2"),
        ("sys/class/devfreq/17000000.gpu/min_freq", "306000000", "GPU clock", "absent", "jetson_clocks"),
        # By 3 GB free, and 4 GB of swap, without which twice as much must be free.
        ("proc/meminfo", "MemAvailable: 2920000 kB\n", "memory", "absent", "multi-user.target"),
        ("proc/meminfo", "MemAvailable: 2940000 kB\n", "memory", "ok", ""),
        ("proc/meminfo", "MemAvailable: 5850000 kB\nSwapTotal: 3900000 kB\n", "swap", "absent", "swapon"),
        ("proc/meminfo", "MemAvailable: 1000000 kB\nSwapTotal: 3910000 kB\n", "swap", "ok", ""),
        ("proc/meminfo", "MemAvailable: 5870000 kB\n", "swap", "ok", ""),
        ("dev/video0", None, "V4L2 cameras", "absent", "v4l2-ctl"),
        ("tmp/argus_socket", None, "argus (CSI cameras)", "absent", "nvargus-daemon"),
        (jetson.ARGUS, None, "argus (CSI cameras)", "absent", "nvidia-l4t-gstreamer"),
    ],
)
def test_what_is_missing_has_its_command(
    board: Path, file: str, text: str | None, row: str, state: str, remedy: str
) -> None:
    (board / file).unlink()
    if text is not None:
        (board / file).write_text(text)
    found = rows(board)[row]
    assert found[0] == state
    assert remedy in found[2]
    assert bool(found[2]) == (state != "ok")


@pytest.mark.parametrize(("here", "state"), [("3.10.12", "ok"), ("3.12.3", "wrong"), ("3.1.0", "wrong")])
def test_python_is_that_of_apts_tensorrt(board: Path, here: str, state: str) -> None:
    found = jetson.python(board, here)
    assert found.state == state
    assert ("python3.10 -m venv" in found.remedy) == (state == "wrong")


@pytest.mark.parametrize(
    ("installed", "state"),
    [
        ({"onnxruntime-gpu": "1.23"}, "ok"),
        ({}, "absent"),
        ({"onnxruntime": "1.23"}, "absent"),
        ({"onnxruntime-gpu": "1.23", "onnxruntime": "1.23"}, "wrong"),
    ],
)
def test_the_wheel_of_onnxruntime_is_the_boards(board: Path, monkeypatch, installed, state) -> None:
    monkeypatch.setattr(jetson, "version", lambda name: installed.get(name, ""))
    found = jetson.onnxruntime_wheel(board)
    assert found.state == state
    assert ("jp6" in found.remedy) == (state != "ok")


def test_a_report_has_versions_checks_and_engines_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from efftam_ros.tools.doctor import command

    home = tmp_path / "home"
    engines = home / "engines"
    engines.mkdir(parents=True)
    (engines / "verified-0123.json").write_text('{"deviations": []}')
    (engines / "one.engine").write_bytes(b"engine")
    monkeypatch.setattr(opening, "engine_folder", lambda: engines)
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.setenv("EFFTAM_SECRET", "hunter2")
    command._write(tmp_path / "report.json", {"environment": {"where": str(home / "x")}, "findings": []})
    text = (tmp_path / "report.json").read_text()
    report = json.loads(text)
    assert report["kept"] == {"verified-0123.json": '{"deviations": []}'}
    assert report["environment"] == {"where": "~/x"}
    for secret in ("hunter2", str(home), socket.gethostname()):
        assert secret not in text
