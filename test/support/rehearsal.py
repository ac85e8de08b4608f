"""Turns a Python process into one on a Jetson Orin NX made of fakes: bindings, TensorRT 10.3, no PyTorch.

For processes that a script under test starts: a ``sitecustomize.py`` in their path calls `start`.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import cache, partial
from importlib.machinery import ModuleSpec
from pathlib import Path

SITE = """\
import sys
sys.path[:0] = {paths!r}
from support.rehearsal import start
start({folder!r})
"""
CLIP_FRAMES = 3
"""Of the chained clip and of warm-ups: a rehearsal shows that the checks run, not how exact a GPU is."""
TRACKED_FRAMES = 9
"""Of the clip that is tracked: the last one attends to a full memory of seven frames."""


def environment(folder: Path, root: Path) -> dict[str, str]:
    """Variables of a process that shall be on the board; ``folder``: for its engines."""
    site = folder / "site"
    site.mkdir()
    paths = [str(root), str(root / "test")]
    (site / "sitecustomize.py").write_text(SITE.format(paths=paths, folder=str(folder)))
    return {"PYTHONPATH": os.pathsep.join([str(site), str(root), os.environ.get("PYTHONPATH", "")])}


def start(folder: str) -> None:
    """Replace the modules of this process."""
    gc.set_threshold(10_000)  # as in test/conftest.py
    sys.modules["torch"] = None  # type: ignore[assignment]
    import cuda.bindings
    from runtime.cuda.fake_cuda import FakeGpu
    from runtime.cuda.fake_status import ORIN_NX
    from runtime.cuda.shim import Shim
    from runtime.tensorrt.fake_tensorrt import make_fake

    from efftam_ros.runtime.cuda.kernel_table import KERNELS
    from efftam_ros.runtime.device import opening, tensors
    from efftam_workshop.agreement import reference
    from support.gpu_rig import divided_arena

    gpu = FakeGpu("12.9", ORIN_NX, driver_version=12060, total_bytes=ORIN_NX.total_bytes)
    kernels = cache(lambda: Shim(Path(folder)))
    gpu.kernels = lambda *launch: kernels().launch(*launch)
    gpu.signatures = {
        name: [parameter.access for parameter in kernel.parameters] for name, kernel in KERNELS.items()
    }
    tensorrt = make_fake("10.3.0", gpu, gpu_name=ORIN_NX.name)
    tensorrt.__spec__ = ModuleSpec("tensorrt", None, origin=__file__)
    sys.modules["cuda.bindings.driver"] = cuda.bindings.driver = gpu.driver
    sys.modules["tensorrt"] = tensorrt
    engines = Path(folder) / "engines"
    engines.mkdir(exist_ok=True)
    if "idle_gpu" not in sys.orig_argv:  # its memory is none of this GPU
        tensors.Arena = partial(divided_arena, gpu)  # type: ignore[assignment, misc]
    opening.engine_folder = lambda: engines
    reference.CLIP_FRAMES = CLIP_FRAMES
    from golden import clip

    whole_clip = clip.clip
    clip.clip = lambda: tuple(part[:TRACKED_FRAMES] for part in whole_clip())  # type: ignore[assignment]
    # Importing these takes time.
    if {"bench", "compare"} & set(sys.orig_argv):
        from efftam_workshop.bench import frames

        frames.WARM_UP = frames.SETTLED = CLIP_FRAMES
    if "build" in sys.orig_argv:
        from efftam_workshop.export.tensorrt import trials

        trials.ROUNDS = trials.RUNS = 1
