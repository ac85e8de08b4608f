"""The command `efftam`: help without heavy imports, one line for mistakes, exit codes."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from configparser import ConfigParser
from dataclasses import fields
from pathlib import Path

import pytest
from tools_helpers import ROOT, assert_refused, package_environment

import efftam_workshop
from efftam_ros import __version__
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.runtime.backends import GPU_BACKENDS
from efftam_ros.tools import cli
from efftam_ros.tools.common.terminal import table_lines


def test_help_names_every_command_with_its_purpose_and_there_is_a_version(efftam):
    assert efftam("--version").stdout.strip() == f"efftam {__version__}"
    result = efftam("--help")
    assert result.returncode == 0
    for name in cli.EFFTAM.commands:
        line = next(line for line in result.stdout.splitlines() if line.startswith(f"  {name} "))
        assert len(line.split()) > 4, f"{name} has no help text"


@pytest.mark.parametrize("name", cli.EFFTAM.commands)
def test_every_command_explains_its_options_in_a_few_lines_each(name, capsys):
    assert cli.main([name, "--help"]) == 0
    usage, options = (text := capsys.readouterr().out).split("\n\n", 1)
    assert f"usage: efftam {name}" in usage
    assert cli.EFFTAM.help_line(name) in text
    paragraphs = re.split(r"\n(?! {20})", options)
    assert max(len(paragraph.splitlines()) for paragraph in paragraphs) <= 5


@pytest.mark.parametrize("name", ["track", "replay", "eval"])
def test_settings_of_the_tracker_are_listed_on_request(name, capsys):
    assert cli.main([name, "--set", "help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for f in fields(TrackerConfig):
        (line,) = (line for line in lines if line.startswith(f"{f.name} "))
        assert f.metadata["text"] in line
        assert str(f.default) in line


def test_help_imports_nothing_heavy():
    """numpy, OpenCV, torch and the like take seconds; help must not wait for them."""
    code = (
        "import sys; from efftam_ros.tools.cli import main; main(['--help']);"
        "heavy = {'numpy', 'cv2', 'torch', 'av', 'rosbags', 'onnxruntime'};"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & heavy))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_without_the_workshop_its_commands_and_the_help_name_the_extra(efftam_here, monkeypatch):
    monkeypatch.setattr("efftam_ros.plugins.find_spec", lambda module: None)
    for name in cli.WORKSHOP:
        assert_refused(efftam_here(name, "--help"), f"efftam {name}", "pip install '.[workshop]'")
    lines = efftam_here("--help").stdout.splitlines()
    assert [line.split()[0] for line in lines if "'.[workshop]'" in line] == list(cli.WORKSHOP)


@pytest.mark.parametrize("name", ["eval", "export"])
def test_a_command_whose_packages_are_missing_names_them_and_the_extra(name, efftam_here, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name in ("tqdm", "torch") else found(name))
    missing = {"eval": "this command needs tqdm", "export": "this command needs torch, tqdm"}[name]
    given = {"eval": ["."], "export": ["x.pt", "--config", "efficienttam_ti", "--out", "o"]}[name]
    assert_refused(efftam_here(name, *given), missing, "pip install '.[workshop]'")


def test_the_table_of_the_workshops_commands_is_what_is_installed():
    points = ConfigParser()
    points.read(Path(efftam_workshop.__file__).with_name("entry_points.txt"))
    assert set(points[cli.GROUP]) == set(cli.WORKSHOP)
    assert all(importlib.util.find_spec(module) for module in points[cli.GROUP].values())


def test_an_unknown_command_or_option_is_one_line(efftam):
    assert_refused(efftam("trak"), "'trak' is not a command", "track, select")
    assert_refused(efftam("doctor", "--nope"), "efftam doctor", "--nope", "--help")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("box is empty;\n draw one"), "box is empty; draw one"),
        (BackendError("no GPU", "buy one"), "no GPU; buy one"),
        (
            FileNotFoundError(2, "No such file or directory", "clip.mp4"),
            "clip.mp4: no such file or directory",
        ),
        (
            OSError(28, "No space left on device"),
            "no space left on the device; free space or write to another disk",
        ),
        (
            ModuleNotFoundError("x", name="rosbags.highlevel"),
            "the Python package rosbags is not installed; run: pip install rosbags, or all of the"
            " extra [tools]: pip install rosbags tqdm matplotlib",
        ),
    ],
)
def test_what_the_user_can_mend_is_one_line(error, line):
    assert cli.explain(error) == line


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError("y"), ModuleNotFoundError("z", name="efftam_ros.nope")]
)
def test_our_own_faults_keep_their_traceback(error):
    assert cli.explain(error) is None


@pytest.mark.parametrize("arguments", [["--help"], ["track", "--help"], ["doctor", "--json"]])
def test_a_closed_pipe_is_quiet(arguments: list[str]):
    process = subprocess.Popen(
        [sys.executable, "-m", "efftam_ros", *arguments],
        env=package_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    # argparse itself swallows what goes wrong while help is printed.
    assert process.wait() in ({0, cli.EXIT_BROKEN_PIPE} if "--help" in arguments else {cli.EXIT_BROKEN_PIPE})


def test_numbers_are_aligned_right_and_gaps_are_dashes():
    lines = table_lines(
        ["name", "AO", "n"], [["car", 0.5, 10], ["bird", None, 9], ["x", float("nan"), "7.1"]], digits=2
    )
    assert lines == [
        "name    AO    n",
        "----  ----  ---",
        "car   0.50   10",
        "bird     -    9",
        "x        -  7.1",
    ]
    assert table_lines(["a", "bc"], []) == ["a  bc", "-  --"]


no_tensorrt = pytest.mark.skipif(
    any(spec and spec.origin for spec in map(importlib.util.find_spec, ("tensorrt", "tensorrt_bindings"))),
    reason="TensorRT is installed",
)
no_driver = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is an NVIDIA driver")


@no_tensorrt
def test_build_without_tensorrt_names_what_to_install(efftam):
    assert_refused(efftam("build"), "TensorRT is not installed", "pip install")


@no_driver
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_verify_without_a_driver_names_the_driver(efftam_here, backend):
    refused = efftam_here("verify", "--backend", backend)
    assert_refused(refused, f"back end {backend} can't run", "NVIDIA driver")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("build --precision int4", ("'int4'", "fp32")),
        ("build --precision tf32", ("'tf32'", "'auto', 'fp16', 'fp32', 'int8'")),
        ("build --sequences .", ("--sequences", "INT8", "fp16")),
        ("build --precision int8 --calibration ./none", ("none",)),
        ("build /nowhere", ("bundle /nowhere does not exist",)),
        ("verify /nowhere", ("bundle /nowhere does not exist",)),
        ("verify --backend torch", ("'torch'", "tensorrt")),
        ("verify --backend onnxruntime-cpu", ("is not one of onnxruntime-cuda",)),
        ("verify --precision fp8", ("'fp8'", "'auto', 'fp32', 'fp16', 'int8'")),
    ],
)
def test_bad_requests_are_one_line(efftam_here, words, said):
    assert_refused(efftam_here(*words.split()), *said)
