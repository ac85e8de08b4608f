"""A signal ends a command wherever it meets Python: also where an exception can only be discarded."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tools_helpers import package_environment

from efftam_ros.tools import cli
from efftam_ros.tools.common.interruption import interruptible

# A command whose first frame is in a place that the test chooses, where the signal comes.
COMMAND = """
import ctypes, os, sys, time, types
from pathlib import Path
from efftam_ros.tools import cli
from efftam_ros.tools.common.outputs import replacing

entered = 0

def work(seconds=0.3):
    global entered
    entered += 1
    if entered == 1:
        print("here", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

class Deleted:
    def __del__(self):
        work()

def deleting():
    Deleted()

def calling_back():
    ctypes.CFUNCTYPE(None)(work)()

def converting():
    try:
        work()
    except BaseException as error:
        raise RuntimeError("the decoder failed") from None

def executing():
    exec("work()")

def run(args):
    with replacing(Path("out.json")) as part:
        part.write_text("unfinished")
        PLACE()
        for _ in range(20):
            work()
    print("ran to its end", flush=True)
    return 0

module = types.ModuleType("efftam_ros.tools.track", "A command.")
module.add_arguments, module.run = lambda parser: None, run
sys.modules["efftam_ros.tools.track"] = module
sys.exit(cli.main(["track"]))
"""


def started(folder: Path, place: str) -> subprocess.Popen[str]:
    (folder / "command.py").write_text(COMMAND.replace("PLACE", place))
    process = subprocess.Popen(
        [sys.executable, "-m", "command"],
        cwd=folder,
        env=package_environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in the background
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n", process.stderr.read()
    return process


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("deleting", signal.SIGINT),
        ("calling_back", signal.SIGTERM),
        ("calling_back", signal.SIGHUP),
        ("converting", signal.SIGTERM),
        ("executing", signal.SIGTERM),
    ],
)
def test_a_signal_ends_the_command_where_an_exception_is_discarded(
    tmp_path: Path, place: str, number: signal.Signals
):
    with started(tmp_path, place) as process:
        process.send_signal(number)
        try:
            said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert said == ("", "efftam track: interrupted\n")
    assert process.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["command.py"]


def test_an_accepted_signal_is_not_raised_again_and_others_soon_after_are_the_same():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    with interruptible() as interruptions:
        for number in (signal.SIGTERM, signal.SIGHUP):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            assert interruptions.pending
            interruptions.pending = False
            time.sleep(0.01)
            assert not interruptions.pending
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_a_signal_that_the_process_ignores_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible() as interruptions:
            signal.raise_signal(signal.SIGINT)
            assert not interruptions.pending
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_command_that_ends_before_it_could_be_interrupted_says_that_a_signal_came(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    kept: list[BaseException] = []  # so that it is never destroyed

    def run(program: cli.Program, name: str, arguments: list[str]) -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as error:
            kept.append(error)
        return 0

    def say(*words: object) -> int:
        signal.raise_signal(signal.SIGTERM)  # the same once more, while it is told
        return told(*words)

    told = cli.Program._say
    monkeypatch.setattr(cli.Program, "_run", run)
    monkeypatch.setattr(cli.Program, "_say", say)
    assert cli.main(["track"]) == 130
    assert capsys.readouterr().err == "efftam track: interrupted\n"
