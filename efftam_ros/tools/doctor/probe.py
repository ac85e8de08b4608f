"""Process in which `efftam doctor` loads libraries and opens back ends.

Started as a module with a JSON list of requests; writes one JSON line per request. Ends after the first
unexpected error, because the state of the process is then unknown.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

from efftam_ros.core.errors import one_line


def load(name: str, candidates: list[str]) -> dict[str, Any]:
    """Load a shared library by name, else from one of these files."""
    problems = []
    for path in (name, *candidates):
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            problems.append(str(error))
        else:
            return {"from": path}
    return {"problem": problems[-1]}


def driver() -> dict[str, Any]:
    """CUDA version of the driver (12020 for 12.2) and its GPUs, through cuda-bindings if installed."""
    try:
        from cuda.bindings import driver as cuda
    except ImportError:
        return _plain_driver()
    try:
        code, version = cuda.cuDriverGetVersion()
        if int(code):
            return {"problem": f"cuDriverGetVersion answers error {int(code)}"}
        (code,) = cuda.cuInit(0)
        if int(code):
            return {"cuda": int(version), "problem": f"cuInit answers error {int(code)}", "gpus": []}
        gpus = [_gpu(cuda, index) for index in range(cuda.cuDeviceGetCount()[1])]
    except RuntimeError as error:  # cuda-bindings without a driver
        return {"problem": one_line(error)}
    return {"cuda": int(version), "gpus": gpus}


def _gpu(cuda: Any, index: int) -> str:
    device = cuda.cuDeviceGet(index)[1]
    kinds = cuda.CUdevice_attribute
    major, minor = (
        cuda.cuDeviceGetAttribute(kind, device)[1]
        for kind in (
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    name = cuda.cuDeviceGetName(128, device)[1].split(b"\0")[0].decode(errors="replace")
    return f"{name}, compute capability {major}.{minor}"


def _plain_driver() -> dict[str, Any]:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"problem": str(error)}
    version = ctypes.c_int()
    code = library.cuDriverGetVersion(ctypes.byref(version))
    return {"problem": f"cuDriverGetVersion answers error {code}"} if code else {"cuda": version.value}


def open_backend(backend: str) -> dict[str, Any]:
    """Open the shipped bundle and run one frame."""
    import numpy as np

    from efftam_ros.core.errors import BackendError, InputError
    from efftam_ros.core.geometry import Box, View
    from efftam_ros.core.types import Image, Prompt
    from efftam_ros.runtime.pipeline import open_pipeline

    try:
        pipeline = open_pipeline(None, backend)
    except BackendError as problem:
        return {"reason": problem.reason, "remedy": problem.remedy}
    except InputError as problem:
        return {"input_error": str(problem)}
    with closing(pipeline):
        image = Image.from_array(np.zeros((90, 160, 3), np.uint8))
        pipeline.encode(image, View.full(image.width, image.height, pipeline.spec.image_side))
        pipeline.decode(Prompt(box=Box(40, 30, 60, 40)))
        return {"runs": pipeline.spec.name}


ACTIONS: dict[str, Callable[..., dict[str, Any]]] = {"load": load, "driver": driver, "open": open_backend}


def main(requests: list[list[Any]]) -> None:
    # Libraries may print to stdout, so answers go to a duplicate and stdout to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for action, *arguments in requests:
        try:
            answer = ACTIONS[action](*arguments)
        except Exception as error:
            answer = {"fault": f"{type(error).__name__}: {one_line(error)}"}
        print(json.dumps(answer), file=answers, flush=True)
        if "fault" in answer:
            return


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
