"""Opens a back end, and a tracker that uses it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from efftam_ros.core.config import DEFAULT_POLICY, TrackerConfig, expanded
from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.plugins import plugin_module
from efftam_ros.runtime.backends import DEFAULT_BACKEND, Backend, PipelineConfig, backend_of, function_of
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.spans import CAMERA_MOTION, IDENTITY, watch_methods

if TYPE_CHECKING:
    from efftam_ros.core.contract import Pipeline
    from efftam_ros.core.targets import TargetSet
    from efftam_ros.core.tracker import MakePolicy
    from efftam_ros.runtime.spans import Watch

REFERENCES, POLICIES_GROUP = "efftam_workshop", "efftam.policies"
"""The package that contains the reference policies, and the group of entry points in which it lists them."""
INSTALL_REFERENCES = "pip install '.[workshop]' in a checkout of efftam_ros"


def open_pipeline(config: PipelineConfig | None = None, bundle: Bundle | None = None) -> Pipeline:
    """Load a bundle into a back end and return the pipeline, ready for the first frame.

    Args:
        config: Back end, bundle and other settings; None: `PipelineConfig()`.
        bundle: A bundle that is loaded already. It replaces the folder ``config.bundle``.

    Raises:
        InputError: The back end does not offer the precision or another setting, or the bundle is faulty.
        BackendError: The back end can't run here. No other back end is opened in its place.
    """
    config = config or PipelineConfig()
    row = backend_of(config.backend)
    precision, max_targets = row.resolved(config.precision), config.max_targets
    if config.zero_copy and not row.gpu:
        raise InputError(f"zero_copy is for back ends on a GPU, and {row.name} uses none; set it to false")
    if bundle is None:
        bundle = Bundle.load(expanded(config.bundle)) if config.bundle else default_bundle()
    try:
        if not row.gpu:
            return function_of(row)(bundle, config.threads, max_targets)
        # Imported only for a GPU, so that a computer without one needs no CUDA library.
        from efftam_ros.runtime.device.opening import open_device_pipeline

        return open_device_pipeline(bundle, row, precision, config.verify, config.zero_copy, max_targets)
    except ModuleNotFoundError as error:
        reason = f"the Python module {error.name} is not installed"
        raise _unavailable(row, reason, row.install.here()) from error
    except BackendError as error:
        raise _unavailable(row, error.reason, error.remedy) from error


def open_targets(
    pipeline: Pipeline, config: TrackerConfig | None = None, watch: Watch | None = None
) -> TargetSet:
    """Return a tracker for several targets that computes its network by ``pipeline``.

    With the default policy the tracker also uses camera motion and the identity network, if ``config``
    enables them.

    Args:
        pipeline: Runs the network. Its ``max_targets`` is the largest number of targets.
        config: Settings of the tracker; None: `TrackerConfig()`.
        watch: Wraps the calls that compute camera motion and identity, for example to time them (see
            `runtime.spans`); None: the calls stay as they are.

    Raises:
        InputError: The package of the configured policy is not installed.
        BackendError: The identity network can't be used.
    """
    from efftam_ros.core.targets import TargetSet

    config = config or TrackerConfig()
    make_policy = policy_of(config.policy)
    if config.policy != DEFAULT_POLICY:  # the reference policies use only the network
        return TargetSet(pipeline, config, make_policy=make_policy)
    from efftam_ros.images.blank import is_blank
    from efftam_ros.images.camera_motion import ImageCameraMotion
    from efftam_ros.runtime.identity import Identity

    looks_ahead = getattr(pipeline, "is_on_gpu", False)
    camera = ImageCameraMotion(looks_ahead) if config.camera_motion == "auto" else None
    describe = Identity().describe if config.identity else None
    if watch is not None:
        if camera is not None:
            watch_methods(watch, CAMERA_MOTION, camera, "estimate", "keep", "since")
        describe = describe and watch(IDENTITY, "describe", describe)
    return TargetSet(pipeline, config, camera, is_blank, describe, make_policy)


def policy_of(name: str) -> MakePolicy:
    """Return the class of the policy with this name. Raises InputError if its package is not installed."""
    if name == DEFAULT_POLICY:
        from efftam_ros.core.policies.default import DefaultPolicy

        return DefaultPolicy
    listed = plugin_module(REFERENCES, POLICIES_GROUP, name)
    if listed is None:
        raise InputError(
            f"policy {name} is in the package {REFERENCES}, which is not installed; run"
            f" {INSTALL_REFERENCES}, or use the policy {DEFAULT_POLICY}"
        )
    module, _, policy = listed.partition(":")
    found: MakePolicy = getattr(import_module(module), policy)
    return found


def _unavailable(row: Backend, reason: str, remedy: str) -> BackendError:
    other = f"; or choose {DEFAULT_BACKEND}" if row.gpu else ""
    return BackendError(f"back end {row.name} can't run: {reason}", remedy + other)
