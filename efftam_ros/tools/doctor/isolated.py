"""Runs requests that may crash in a separate process (`probe`)."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import efftam_ros
from efftam_ros.tools.doctor.system import System

Request = Sequence[Any]
Answer = dict[str, Any]


def ask(system: System, requests: Sequence[Request], seconds: float) -> Generator[Answer, None, None]:
    """Yield one answer per request, in order.

    All requests go to one process; after a crash, an error or ``seconds`` without an answer the remaining
    ones go to a new process. That answer has a key "fault" with one line.
    """
    waiting = list(requests)
    while waiting:
        with tempfile.TemporaryFile("w+", errors="replace") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "efftam_ros.tools.doctor.probe", json.dumps(waiting)],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(system),
                text=True,
            )
            try:
                for answer in _answers(process, len(waiting), seconds):
                    if "ended" in answer:
                        stderr.seek(0)
                        answer = {"fault": _ending(process.wait(), stderr.read())}
                    yield answer
                    waiting.pop(0)
            finally:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()


def _answers(process: subprocess.Popen[str], count: int, seconds: float) -> Iterator[Answer]:
    """Answers until the process has ended or failed."""
    assert process.stdout is not None
    for _ in range(count):
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        if not ready:
            yield {"fault": f"no answer within {seconds:g} s", "slow": True}
            return
        line = process.stdout.readline()
        answer: Answer = json.loads(line) if line else {"ended": True}
        yield answer
        if "ended" in answer or "fault" in answer:
            return


def _environment(system: System) -> dict[str, str]:
    environment = dict(system.environment)
    package = str(Path(efftam_ros.__file__).parents[1])
    environment["PYTHONPATH"] = ":".join(filter(None, [environment.get("PYTHONPATH"), package]))
    return environment


def _ending(code: int, stderr: str) -> str:
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f"its process ended {how}{': ' + lines[-1] if lines else ''}"
