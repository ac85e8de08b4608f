"""Tests the GPU driver and back ends in a process of their own, because a fault in them can end the
process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import efftam_ros
from efftam_ros.core.errors import BackendError, InputError

TIMED = 12
"""Number of frames that a back end tracks in the test. Only the second half is timed."""
CAPTURED: Any = {"capture_output": True, "text": True, "errors": "replace", "check": False}


def answer(*question: str, seconds: float) -> dict[str, Any]:
    """Run `driver` or `open_backend` in a new process, and return the result.

    ``question``: "driver", or "open" and the name of a back end; ``seconds``: longest time to wait, s.

    After an error the result has the keys "problem" and "remedy". The remedy is "" if the process crashed or
    took too long. If it took too long, the key "slow" is True.
    """
    paths = [os.environ.get("PYTHONPATH", ""), str(Path(efftam_ros.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "efftam_ros.tools.doctor.probe", *question]
    try:
        done = subprocess.run(command, timeout=seconds, env=environment, **CAPTURED)
    except subprocess.TimeoutExpired:
        return {"problem": f"no answer within {seconds:g} s", "remedy": "", "slow": True}
    if done.returncode == 0:
        return json.loads(done.stdout)
    code, error = done.returncode, done.stderr.strip() or "no message"
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return {"problem": f"its process ended {how}: {error.splitlines()[-1].strip()}", "remedy": ""}


def driver() -> dict[str, Any]:
    """Return the CUDA version of the driver ("cuda") and the names of the GPUs ("gpus").

    Raises BackendError if there is no usable driver.
    """
    from efftam_ros.runtime.cuda.api import Cuda, dotted

    cuda = Cuda.load()
    devices = [cuda.call("cuDeviceGet", index) for index in range(cuda.call("cuDeviceGetCount"))]
    names = [cuda.call("cuDeviceGetName", 128, device).split(b"\0")[0].decode() for device in devices]
    return {"cuda": dotted(cuda.require_driver()), "gpus": names}


def open_backend(name: str) -> dict[str, Any]:
    """Open the shipped network with a back end, and track a few frames.

    Returns the network's name ("network"), a line for the user on how the network runs here ("notice", mostly
    empty), and the median time of a frame, ms ("frame_ms"). Raises BackendError or InputError if the back end
    can't be opened.
    """
    import time
    from statistics import median

    import numpy as np

    from efftam_ros.core.contract import Look, Remembered
    from efftam_ros.core.geometry import Box, View
    from efftam_ros.core.types import Image, MemoryPlan, Prompt
    from efftam_ros.runtime.backends import PipelineConfig
    from efftam_ros.runtime.opening import open_pipeline

    with closing(open_pipeline(PipelineConfig(backend=name))) as pipeline:
        view, taken = View.full(160, 90, pipeline.spec.image_side), []
        plan = MemoryPlan((0,), (pipeline.spec.temporal_rows - 1,), (0,))
        for index in range(TIMED):
            start = time.perf_counter()
            image = Image.from_array(np.zeros((90, 160, 3), np.uint8))
            prompt = None if index else Prompt(box=Box(40, 30, 60, 40))
            pipeline.look(image, [Look(0, (view,), plan, prompt)]).candidates(0)
            pipeline.remember([] if index else [Remembered(0, 0, 0, present=True)])
            taken.append(1e3 * (time.perf_counter() - start))
        return {
            "network": pipeline.spec.name,
            "notice": pipeline.notice,
            "frame_ms": median(taken[TIMED // 2 :]),
        }


def main(question: str, *arguments: str) -> None:
    """Run `driver` or `open_backend`, and print the result as JSON to stdout."""
    # Libraries may print to stdout. So the file of stdout is kept for the result alone, and file number 1
    # becomes stderr.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        found = driver() if question == "driver" else open_backend(*arguments)
    except BackendError as error:
        found = {"problem": error.reason, "remedy": error.remedy}
    except InputError as error:
        found = {"problem": str(error), "remedy": "install the package again"}
    print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
