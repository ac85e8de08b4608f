"""Asks in a process of its own what may end the process: the driver, and each back end."""

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
"""Frames of a probe, of which the second half is timed."""
CAPTURED: Any = {"capture_output": True, "text": True, "errors": "replace", "check": False}


def answer(*question: str, seconds: float) -> dict[str, Any]:
    """Return the result of `driver` or `open_backend`, or "problem" and "remedy" of its error. The remedy is
    "" where the process ended; without an answer in this time the problem is "slow"."""
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
    """Return the driver's CUDA version and the names of its GPUs."""
    from efftam_ros.runtime.cuda.api import Cuda, dotted

    cuda = Cuda.load()
    devices = [cuda.call("cuDeviceGet", index) for index in range(cuda.call("cuDeviceGetCount"))]
    names = [cuda.call("cuDeviceGetName", 128, device).split(b"\0")[0].decode() for device in devices]
    return {"cuda": dotted(cuda.require_driver()), "gpus": names}


def open_backend(name: str) -> dict[str, Any]:
    """Open the network that ships, and track for a few frames: "frame_ms" is the median time of one."""
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
    # Libraries may print to stdout, so the answer goes to a duplicate and stdout to stderr.
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
