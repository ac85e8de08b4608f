"""Opening a back end, and a tracker on it, or raising an error with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from efftam_ros.core.config import MOST_TARGETS, TrackerConfig
from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.core.gallery import Describe
from efftam_ros.runtime.backends import DEFAULT_BACKEND, VERIFY, Backend, backend_of, function_of
from efftam_ros.runtime.bundle import Bundle, default_bundle

if TYPE_CHECKING:
    from efftam_ros.core.contract import CameraMotionSource, Pipeline
    from efftam_ros.core.targets import TargetSet
    from efftam_ros.core.tracker import Tracker


def open_pipeline(
    bundle: str | Path | Bundle | None = None,
    backend: str = DEFAULT_BACKEND,
    threads: int = 0,
    verify: str = "quick",
    zero_copy: bool = False,
    precision: str = "auto",
    max_targets: int = 1,
) -> Pipeline:
    """Load a bundle (default: the one that ships) into a back end, ready for the first frame.

    ``threads``: CPU threads of the network, 0 for one per physical core up to four. ``verify``: what is
    compared with the CPU before a GPU is trusted, "quick" (every graph), "full" (a clip too) or "off".
    ``zero_copy``: the GPU reads images from the host's memory, which may pay on a GPU that shares it; else
    they are copied to the device's. ``precision``: of `PRECISIONS`, as far as the back end offers it.
    ``max_targets``: lanes, each with the memory of one target.

    Raises InputError (unknown back end, precision that it does not offer, faulty bundle) and BackendError
    (never a slower back end in place of the one asked for).
    """
    row = backend_of(backend)
    resolved = row.resolved(precision)
    if threads < 0:
        raise InputError(f"threads is {threads}; give 0 (automatic) or a positive number")
    if not 1 <= max_targets <= MOST_TARGETS:
        raise InputError(f"max_targets is {max_targets}; give 1 to {MOST_TARGETS}")
    if verify not in VERIFY:
        raise InputError(f"verify is {verify!r}; choose one of {', '.join(VERIFY)}")
    if zero_copy and not row.gpu:
        raise InputError(f"zero_copy is for the back ends on a GPU; {backend} reads images where they are")
    if not isinstance(bundle, Bundle):
        bundle = Bundle.load(bundle) if bundle is not None else default_bundle()
    try:
        if not row.gpu:
            return function_of(row)(bundle, threads, None, max_targets)
        from efftam_ros.runtime.device.opening import open_device_pipeline

        return open_device_pipeline(bundle, row, resolved, verify, zero_copy, max_targets)
    except ModuleNotFoundError as error:
        reason = f"the Python module {error.name} is not installed"
        raise _unavailable(row, reason, row.install.here()) from error
    except BackendError as error:
        raise _unavailable(row, error.reason, error.remedy) from error


def open_tracker(pipeline: Pipeline, config: TrackerConfig | None = None) -> Tracker:
    """A tracker on a pipeline, with its sources beside the network: camera motion and points."""
    from efftam_ros.core.tracker import Tracker
    from efftam_ros.images.target_points import FlowPoints, is_blank

    config = config or TrackerConfig()
    return Tracker(pipeline, config, _camera_of(config), FlowPoints(), is_blank, _describe_of(config))


def open_targets(pipeline: Pipeline, config: TrackerConfig | None = None) -> TargetSet:
    """As `open_tracker`, for as many targets as the pipeline has lanes."""
    from efftam_ros.core.targets import TargetSet
    from efftam_ros.images.target_points import FlowPoints, is_blank

    config = config or TrackerConfig()
    return TargetSet(pipeline, config, _camera_of(config), FlowPoints, is_blank, _describe_of(config))


def _describe_of(config: TrackerConfig) -> Describe | None:
    """Raises BackendError when the identity network can't be used."""
    from efftam_ros.runtime.identity import Identity

    return Identity().describe if config.identity and config.policy == "default" else None


def _camera_of(config: TrackerConfig) -> CameraMotionSource | None:
    from efftam_ros.images.camera_motion import ImageCameraMotion

    return ImageCameraMotion() if config.camera_motion == "auto" else None


def _unavailable(row: Backend, reason: str, remedy: str) -> BackendError:
    other = f"; or choose {DEFAULT_BACKEND}" if row.gpu else ""
    return BackendError(f"back end {row.name} can't run: {reason}", remedy + other)
