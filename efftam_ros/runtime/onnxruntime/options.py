"""Options of onnxruntime's sessions and providers on a GPU."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import MANIFEST, Bundle, BundleGraph, Tensor
from efftam_ros.runtime.tensorrt.store import check_private

MAX_DYNAMIC = 512
"""Largest size of a dynamic axis. TensorRT needs a limit when it builds an engine."""
ERRORS_ONLY = 3
"""Value of onnxruntime's log level at which only errors are logged."""
# Size of a dynamic axis for which TensorRT optimises an engine: the points of a box or of a few clicks.
_USUAL_DYNAMIC = 4

# Options that have no influence on the content of an engine.
_NOT_IN_THE_KEY = ("user_compute_stream", "device_id")


def session_options(ort: Any, strict: bool) -> Any:
    """Return the options of a session on the GPU.

    ``ort`` is the module onnxruntime. With ``strict``, opening the session fails if a node would run on the
    CPU.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if strict:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def run_options(ort: Any, graph_id: int | None) -> Any:
    """Return the options of a run that does not wait for the GPU.

    ``graph_id``: number of the CUDA graph that the run captures or launches; None if the session captures no
    CUDA graphs; -1 if it captures them, but not for this run.
    """
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph_id is not None:
        options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


def cuda_options(stream: int, device: int, exact: bool, capture: bool) -> dict[str, str]:
    """Return the options of the CUDA provider.

    Args:
        stream: Address of the cudaStream_t on which the provider works.
        device: Index of the GPU.
        exact: Whether products are computed in float32; if not, in TF32.
        capture: Whether runs with a ``graph_id`` become CUDA graphs.
    """
    return {
        "device_id": str(device),
        "user_compute_stream": str(stream),
        # Copies also use user_compute_stream, so that they stay in order with the kernels.
        "do_copy_in_default_stream": "1",
        "arena_extend_strategy": "kSameAsRequested",
        # EXHAUSTIVE would select algorithms by their time, so that results could differ between two starts.
        "cudnn_conv_algo_search": "HEURISTIC",
        "use_tf32": "0" if exact else "1",
        "enable_cuda_graph": "1" if capture else "0",
    }


def tensorrt_options(stream: int, device: int, graph: BundleGraph, cache: Path | None) -> dict[str, str]:
    """Return the TensorRT provider's options for one graph.

    Args:
        stream: Address of the cudaStream_t on which the provider works.
        device: Index of the GPU.
        graph: The graph.
        cache: Folder in which its engines are stored; None: engines are not stored.
    """
    options = {
        "device_id": str(device),
        "user_compute_stream": str(stream),
        # With this option TensorRT chooses the layers to compute in FP16 itself ("weakly typed"), which makes
        # the attention of the image encoder wrong.
        "trt_fp16_enable": "0",
        "trt_auxiliary_streams": "0",
        # The provider waits for the GPU after every launch of a CUDA graph, so plain launches are faster.
        "trt_cuda_graph_enable": "0",
        "trt_engine_cache_enable": "0" if cache is None else "1",
        "trt_timing_cache_enable": "0" if cache is None else "1",
        **_profiles(graph.inputs),
    }
    if cache is not None:
        options["trt_engine_cache_path"] = options["trt_timing_cache_path"] = str(cache)
        options["trt_engine_cache_prefix"] = f"{graph.name}-{cache.name}"
    return options


def provider_cache_folder(
    root: Path, bundle: Bundle, name: str, options: Mapping[str, str], made_for: tuple[str, ...]
) -> Path:
    """Return the folder under ``root`` for one graph's TensorRT engines, created if missing.

    The folder's name is a hash of the bundle's files, the graph's name, the provider's options, and
    ``made_for``: the versions of onnxruntime and TensorRT, and the board. The hash includes the board because
    onnxruntime itself distinguishes engines only by the architecture of the GPU. Raises InputError if the
    folder can't be created or if every user may write there.
    """
    # These hashes are correct, because they were checked when the bundle was loaded.
    files = json.loads((bundle.folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    kept = {key: value for key, value in options.items() if key not in _NOT_IN_THE_KEY}
    text = json.dumps([{key: entry["sha256"] for key, entry in files.items()}, name, kept, made_for])
    folder = root / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in (root, folder):
            check_private(part)
    except OSError as error:
        raise InputError(
            f"engine cache {folder} can't be made ({error.strerror}); name a folder that can be written"
        ) from error
    return folder


def _profiles(inputs: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the options with the ranges of shapes for which an engine is built.

    Without them the engine would be built again when a prompt has more points than any before.
    """
    dynamic = {name: tensor.shape for name, tensor in inputs.items() if any(map(_open, tensor.shape))}
    if not dynamic:
        return {}
    return {
        f"trt_profile_{kind}_shapes": ",".join(
            f"{name}:{'x'.join(str(size if _open(axis) else axis) for axis in shape)}"
            for name, shape in dynamic.items()
        )
        for kind, size in (("min", 1), ("opt", _USUAL_DYNAMIC), ("max", MAX_DYNAMIC))
    }


def _open(axis: int | str) -> bool:
    return isinstance(axis, str)
