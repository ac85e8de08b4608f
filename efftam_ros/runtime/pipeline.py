"""Opens a pipeline by the name of its back end, and a tracker on it, or raises an error with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.runtime.bundle import Bundle, default_bundle

if TYPE_CHECKING:
    from efftam_ros.core.config import TrackerConfig
    from efftam_ros.core.contract import CameraMotionSource, Pipeline
    from efftam_ros.core.tracker import Tracker

DEFAULT_BACKEND = "onnxruntime-cpu"
GPU_BACKENDS = (
    "onnxruntime-cuda",
    "onnxruntime-cuda-fp32",
    "onnxruntime-tensorrt",
    "tensorrt",
    "tensorrt-fp32",
    "tensorrt-int8",
)
"""Those that end in -fp32 multiply without TF32; `tensorrt` computes in FP16, `tensorrt-int8` in INT8 where
that was faster when the engines were built, the others in FP32 with TF32."""
VERIFY = ("quick", "full", "off")
BACKENDS = (DEFAULT_BACKEND, *GPU_BACKENDS)


def open_pipeline(
    bundle: str | Path | Bundle | None = None,
    backend: str = DEFAULT_BACKEND,
    threads: int = 0,
    verify: str = "quick",
    zero_copy: bool = False,
) -> Pipeline:
    """Load a bundle (default: the one that ships) into a back end, ready for the first frame.

    ``threads``: CPU threads of the network, 0 for one per physical core up to four. ``verify``: what is
    compared with the CPU before a GPU is trusted, "quick" (every graph), "full" (a clip too) or "off".
    ``zero_copy``: the GPU reads images from the host's memory, which may pay on a GPU that shares it; else
    they are copied to the device's.

    Raises InputError (unknown back end, faulty bundle) and BackendError (never a slower back end in
    place of the one asked for).
    """
    if backend not in BACKENDS:
        raise InputError(f"back end {backend!r} is not known; choose one of {', '.join(BACKENDS)}")
    if threads < 0:
        raise InputError(f"threads is {threads}; give 0 (automatic) or a positive number")
    if verify not in VERIFY:
        raise InputError(f"verify is {verify!r}; choose one of {', '.join(VERIFY)}")
    if not isinstance(bundle, Bundle):
        bundle = Bundle.load(bundle) if bundle is not None else default_bundle()
    try:
        return _open(bundle, backend, threads, verify, zero_copy)
    except ModuleNotFoundError as error:
        reason = f"the Python module {error.name} is not installed"
        raise _unavailable(backend, reason, "pip install onnxruntime") from error
    except BackendError as error:
        raise _unavailable(backend, error.reason, error.remedy) from error


def _open(bundle: Bundle, backend: str, threads: int, verify: str, zero_copy: bool) -> Pipeline:
    if backend in GPU_BACKENDS:
        from efftam_ros.runtime.device.opening import open_device_pipeline

        return open_device_pipeline(bundle, backend, verify, zero_copy)
    if zero_copy:
        raise InputError(f"zero_copy is for the back ends on a GPU; {backend} reads images where they are")
    from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline

    return OrtPipeline(bundle, threads=threads)


def _unavailable(backend: str, reason: str, remedy: str) -> BackendError:
    other = "" if backend == DEFAULT_BACKEND else f"; or choose {DEFAULT_BACKEND}"
    return BackendError(f"back end {backend} can't run: {reason}", remedy + other)


def open_tracker(
    pipeline: Pipeline, config: TrackerConfig | None = None, attitude: CameraMotionSource | None = None
) -> Tracker:
    """A tracker on a pipeline, with its sources beside the network: camera motion, colours, points.

    ``attitude``: the source of the camera's motion for ``camera_motion`` "topic"; raises InputError when it
    is None then.
    """
    from efftam_ros.core.config import TrackerConfig
    from efftam_ros.core.tracker import Tracker
    from efftam_ros.runtime.image.appearance import ColourAppearance
    from efftam_ros.runtime.image.camera_motion import ImageCameraMotion
    from efftam_ros.runtime.image.target_points import FlowPoints

    config = config or TrackerConfig()
    camera: CameraMotionSource | None = None
    if config.camera_motion == "auto":
        camera = ImageCameraMotion()
    elif config.camera_motion == "topic":
        if attitude is None:
            raise InputError(
                "camera_motion is 'topic', but nothing here tells the camera's attitude; choose auto or off"
            )
        camera = attitude
    return Tracker(pipeline, config, camera, ColourAppearance(), FlowPoints())
