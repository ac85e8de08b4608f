"""`efftam doctor`: one page that is true of this machine, and of machines made up of files."""

from __future__ import annotations

import argparse
import json
import os
import platform
import runpy
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import setuptools
from tools_helpers import CAPTURED, ROOT, driver_module

from efftam_ros.package_files import PROFILE_VARIABLES
from efftam_ros.packages import OPTIONAL
from efftam_ros.runtime.backends import BACKENDS, DEFAULT_BACKEND
from efftam_ros.runtime.device import opening
from efftam_ros.tools.doctor import checks, command, jetson
from efftam_ros.tools.doctor.checks import Finding, environment, machine_findings
from efftam_ros.tools.doctor.jetson import jetson_findings
from efftam_ros.tools.doctor.probe import answer


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes files of a machine; programs go to bin, Python modules to fake."""

    def make(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        return tmp_path

    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/fake{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return make


def by_name(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def driver(source: str, version: str = "12.9.10") -> dict[str, str]:
    return {
        "fake/cuda/bindings/__init__.py": f"__version__ = {version!r}",
        "fake/cuda/bindings/driver.py": source,
    }


# --- this machine -------------------------------------------------------------------------------------------


def test_of_a_healthy_pc_only_what_tracking_on_its_cpu_needs_is_told(efftam):
    result = efftam("doctor")
    assert result.returncode == 0, result.stderr
    answer, *rest = result.stdout.splitlines()
    assert answer == "tracking on the CPU: can run here"
    assert not [line for line in rest if line.strip().startswith(("--", "!!", "??", "->"))]
    assert [line for line in rest if line and not line.startswith(" ")] == ["Python", "back ends", "machine"]


def test_json_has_every_back_end_and_the_network(efftam):
    report = json.loads(efftam("doctor", "--json").stdout)
    assert report["runs"] is True
    backends = {f["name"]: f for f in report["findings"] if f["section"] == "back ends"}
    assert tuple(backends) == BACKENDS
    assert backends[DEFAULT_BACKEND]["state"] == "ok"
    for finding in backends.values():
        assert finding["state"] == "ok" or (finding["found"] and finding["remedy"])
    found = {f["name"]: f["found"] for f in report["findings"]}
    assert found["numpy"] == np.__version__
    assert found["network"].startswith("compact_192, sha256 of bundle.json ")
    assert found["identity network"].startswith("1.64 MB, ")
    assert " 128 numbers" in found["identity network"]
    assert report["environment"]["python"] == platform.python_version()


def test_a_damaged_package_is_found_out(tmp_path: Path):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "efftam_ros", tmp_path / "efftam_ros", ignore=ignored)
    next((tmp_path / "efftam_ros" / "models").rglob("mask_decoder*.onnx")).unlink()
    (tmp_path / "efftam_ros" / "models" / "identity" / "identity.onnx").write_bytes(b"cut off")
    started = [sys.executable, "-m", "efftam_ros", "doctor"]
    result = subprocess.run(started, cwd=tmp_path, timeout=100, **CAPTURED)
    assert result.returncode == 1, result.stderr
    assert "mask_decoder" in result.stdout
    assert "is missing" in result.stdout
    assert "identity.onnx is damaged" in result.stdout
    assert "can NOT run" in result.stdout


WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
import importlib.util
whole = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {hidden!r} else whole(name, *rest)
"""


def test_a_bare_wheel_is_examined_and_the_extras_that_are_missing_are_named(machine, tmp_path: Path):
    """numpy, onnxruntime and OpenCV alone."""
    hidden = {package.module for package in OPTIONAL} | {"rclpy", "cuda", "launch_ros", "ament_index_python"}
    machine(**{"fake/sitecustomize.py": WITHOUT.format(hidden=hidden)})
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}/fake{os.pathsep}{ROOT}"}
    started = [sys.executable, "-m", "efftam_ros", "doctor"]
    result = subprocess.run([*started, "--all"], env=environ, timeout=100, **CAPTURED)
    assert result.returncode == 1
    assert result.stderr == ""
    cpu, gpu, ros, flight = result.stdout.splitlines()[:4]
    assert cpu == "tracking on the CPU: can run here"
    assert gpu.startswith("GPU: can NOT run here, see ")
    assert ros.startswith("ROS 2: can NOT run here, see rclpy")
    assert flight == "flight: can NOT run here, see pymavlink, pyserial"
    for package in OPTIONAL:
        assert f"-> {package.install}" in result.stdout
        assert package.install.startswith(f"pip install {package.pip}")
        assert (f"extra [{package.extra}]" in package.install) is bool(package.extra)
    assert "No module named 'rclpy'" in result.stdout


def test_every_package_is_in_the_extra_that_is_named(monkeypatch: pytest.MonkeyPatch):
    given: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **settings: given.update(settings))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    for package in OPTIONAL:
        extra = given["extras_require"][package.extra] if package.extra else given["install_requires"]
        assert any(line.startswith((f"{package.pip}>", f"{package.pip}=")) for line in extra), package


# --- other machines -----------------------------------------------------------------------------------------


def test_the_machine_is_read_from_its_files(machine):
    root = machine(
        **{
            "proc/cpuinfo": "processor : 0\nmodel name\t: Test CPU 9\n",
            "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 1\n",
            "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
            "sys/class/devfreq/17000000.gpu/min_freq": "306000000\n",
            "sys/class/devfreq/17000000.gpu/max_freq": "1300500000\n",
            "var/lib/nvpmodel/status": "pmode:0001",
            "etc/nvpmodel.conf": "< POWER_MODEL ID=1 NAME=25W >\n",
            **driver(driver_module(12060, (8, 7), "Orin")),
        }
    )
    facts = environment(root)
    assert facts["cpu"] == "Test CPU 9"
    assert facts["platform"] == "L4T 36.4.3, NVIDIA Jetson AGX Orin Developer Kit"
    assert (facts["gpus"], facts["driver_cuda"]) == (["Orin"], "12.6")
    found = by_name(machine_findings(facts))
    assert found["power mode"].found == "25W (1)"
    assert found["gpu clock"].found.startswith("306 to 1300 MHz, follows the load; sudo jetson_clocks")
    assert found["NVIDIA driver"].found == "unknown version, supports CUDA 12.6"
    assert {finding.state for finding in found.values()} == {"ok"}


@pytest.mark.parametrize("release", ["# R35 (release), REVISION: 5.0, GCID: 1", "something else"])
def test_an_old_jetpack_is_wrong(machine, release: str):
    finding = by_name(machine_findings(environment(machine(**{"etc/nv_tegra_release": release}))))["platform"]
    assert (finding.state, finding.remedy) == ("wrong", "install JetPack 6.1 or newer")


@pytest.mark.parametrize(
    ("source", "found", "remedy"),
    [
        (
            driver(driver_module(12020, (8, 6), "x"), "12.9.0"),
            "cuda-bindings 12.9.0",
            'pip install "cuda-bindings>=12.9.1,<13"',
        ),
        (driver_module(12010, (8, 6), "x"), "has CUDA 12.1, the kernels need 12.2", "535 or newer"),
        (
            driver_module(12020, (8, 6), "x").replace("CUDA_VERSION = 12020", "CUDA_VERSION = 13000"),
            "has CUDA 12.2, cuda-bindings needs 13.0",
            'pip install "cuda-bindings>=12.9.1,<13"',
        ),
        (
            driver_module(12020, (8, 6), "x").replace("def cuInit(flags): return (0,)", "import signal, os\n"
            "def cuInit(flags): os.kill(os.getpid(), signal.SIGSEGV)"),
            "its process ended by SIGSEGV",
            "reboot, or reinstall the driver",
        ),
    ],
    ids=["bindings stop all threads while they wait", "too old", "older than the bindings", "crashes"],
)  # fmt: skip
def test_a_driver_that_can_not_be_used_is_wrong(machine, source, found: str, remedy: str):
    files = {"proc/driver/nvidia/version": "NVRM version: 535.104.05"}
    files |= source if isinstance(source, dict) else driver(source)
    finding = by_name(machine_findings(environment(machine(**files))))["NVIDIA driver"]
    assert finding.state == "wrong"
    assert found in finding.found
    assert remedy in finding.remedy


def test_nvidia_smi_that_fails_is_quoted(machine):
    smi = "#!/bin/sh\necho 'Driver/library version mismatch' >&2\nexit 18\n"
    finding = by_name(machine_findings(environment(machine(**{"bin/nvidia-smi": smi}))))["nvidia-smi"]
    assert (finding.state, finding.found) == ("wrong", "Driver/library version mismatch")
    assert "reboot" in finding.remedy


def test_two_packages_of_onnxruntime_are_wrong(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "version", lambda name: "1.31.1")
    finding = by_name(checks.python_findings())["onnxruntime"]
    assert finding.state == "wrong"
    assert "overwrite each other" in finding.found
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in finding.remedy


# --- back ends ----------------------------------------------------------------------------------------------


def test_a_back_end_that_takes_too_long_is_untried(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command, "OPEN_SECONDS", 0.01)
    finding = by_name(command.backend_findings())[DEFAULT_BACKEND]
    assert (finding.state, finding.found) == ("untried", "no answer within 0.01 s")
    assert finding.remedy == f"efftam bench --frames 1 --backend {DEFAULT_BACKEND}"


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ("raise RuntimeError('wrong\\nlibrary')", "its process ended with exit code 1: library"),
        ("import os; os.abort()", "its process ended by SIGABRT"),
    ],
)
def test_a_fault_of_a_back_end_does_not_hide_the_next(machine, broken: str, found: str):
    machine(**{"fake/onnxruntime/__init__.py": broken})
    answers = by_name(command.backend_findings())
    assert tuple(answers) == BACKENDS
    assert answers[DEFAULT_BACKEND].state == "wrong"
    assert answers[DEFAULT_BACKEND].found.startswith(found)
    assert all(finding.remedy for finding in answers.values())


def test_libraries_that_write_to_stdout_do_not_spoil_the_answer(machine):
    machine(**driver("print('hello')\n" + driver_module(12060, (8, 7), "Orin")))
    assert answer("driver", seconds=30) == {"cuda": "12.6", "gpus": ["Orin"]}


def finding(name: str, state: str, section: str = "Python", remedy: str = "") -> Finding:
    return Finding(section, name, state, "found", remedy)


CPU, GPU = (finding(name, "{}", "back ends") for name in ("cpu", "gpu"))


@pytest.mark.parametrize(
    ("findings", "lacking"),
    [
        ([finding("numpy", "ok")], ""),
        ([finding("numpy", "absent")], "numpy"),
        ([finding("cv_bridge", "absent"), finding("rclpy", "absent"), finding("cv2", "wrong")], "cv2, rclpy"),
        ([finding("cv_bridge", "absent")], ""),  # the node does without
        # Of several back ends one is enough, also one that may be compiling.
        ([CPU._replace(state="ok"), GPU._replace(state="wrong")], ""),
        ([CPU._replace(state="untried"), finding("numpy", "wrong")], ""),
        ([CPU._replace(state="absent"), GPU._replace(state="absent"), finding("x", "absent")], "cpu"),
        ([CPU._replace(state="absent"), GPU._replace(state="wrong")], "gpu"),
    ],
)
def test_an_area_can_be_used_unless_something_it_needs_is_not_there(findings, lacking: str):
    assert command._verdict(findings) == (f"can NOT run here, see {lacking}" if lacking else "")


def test_the_page_groups_by_section_and_tells_a_remedy_once(capsys):
    rows = (("a", "ok", "one", ""), ("b", "wrong", "two", "pip x"), ("c", "absent", "one", "pip x"))
    command._print([finding(name, state, section, remedy) for name, state, section, remedy in rows])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines == [
        *(["one"], ["ok", "a", "found"], ["--", "c", "found"], ["->", "pip", "x"]),
        *(["two"], ["!!", "b", "found"], ["->", "as", "for", "c"]),
    ]


# --- ROS ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "state", "words"),
    [
        ({}, "absent", "not set"),
        ({"FASTRTPS_DEFAULT_PROFILES_FILE": "/nowhere.xml"}, "wrong", "does not exist"),
        ({"FASTRTPS_DEFAULT_PROFILES_FILE": __file__}, "ok", __file__),
        ({"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}, "ok", "not used"),
        ({"RMW_IMPLEMENTATION": "rmw_zenoh_cpp", PROFILE_VARIABLES[1]: "/nowhere.xml"}, "ok", "not used"),
        ({"RMW_IMPLEMENTATION": "rmw_fastrtps_dynamic_cpp"}, "absent", "not set"),
    ],
)
def test_the_fast_dds_profile(monkeypatch: pytest.MonkeyPatch, environ, state: str, words: str):
    for name in ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE", "RMW_IMPLEMENTATION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    finding = checks.fastdds_profile()
    assert finding.state == state
    assert words in finding.found
    # Its shared memory is judged where it is used.
    monkeypatch.setattr(checks, "loads", lambda module: "")
    monkeypatch.setattr(checks, "SHM", os.curdir)
    for free_mb, state in ((64, "ok"), (63.9, "wrong")):
        usage = SimpleNamespace(free=free_mb * 1e6, total=1e9)
        monkeypatch.setattr(checks.shutil, "disk_usage", lambda folder, usage=usage: usage)
        judged = [found.state for found in checks.ros_findings() if found.name == os.curdir]
        assert judged == ([] if words == "not used" else [state])


# --- a Jetson, each row from the files of a board, and what a report holds ---

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
def board(machine) -> Path:
    """An Orin with JetPack 6.2 in its fastest mode."""
    return machine(
        **{
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
    )


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


@pytest.mark.parametrize(("is_wrong", "code"), [(False, 0), (True, 1)])
def test_on_a_jetson_only_what_is_wrong_counts_against_it(board, monkeypatch, capsys, is_wrong, code):
    """Without onnxruntime-gpu, and with a clock that follows the load, the back end tensorrt runs."""
    (board / "sys/class/devfreq/17000000.gpu/min_freq").write_text("306000000")
    found = [f for f in jetson_findings(board) if f.state != "wrong"]
    assert {f.name for f in found if f.state == "absent"} >= {"onnxruntime-gpu", "GPU clock"}
    if is_wrong:
        found.append(checks.Finding("Jetson", "TensorRT", "wrong", "apt has not installed it"))
    monkeypatch.setattr(command, "jetson_findings", lambda: found)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.run(parser.parse_args(["--jetson"])) == code
    verdict = "can NOT run here, see TensorRT" if is_wrong else "can run here"
    assert f"this Jetson: {verdict}" in capsys.readouterr().out.splitlines()


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


def test_remedies_of_ros_work_where_it_comes_from_wheels(monkeypatch):
    """apt's packages do not fit there; of these modules there are no wheels."""
    monkeypatch.setattr(checks, "loads", lambda module: "not installed")
    for has_wheels, wanted in ((True, "no wheel"), (False, "sudo apt install ros-")):
        monkeypatch.setattr(checks, "has_ros_wheels", lambda has_wheels=has_wheels: has_wheels)
        remedies = {f.name: f.remedy for f in checks.ros_findings()}
        for module in ("launch_ros", "cv_bridge", "vision_msgs"):
            assert wanted in remedies[module]
        assert all("apt install" not in remedy for remedy in remedies.values()) == has_wheels
