"""Finds the ONNX files of a peer tracker in a folder, and opens them with onnxruntime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.onnxruntime.cpu import default_threads, set_threads
from efftam_ros.runtime.onnxruntime.libraries import first_line

Floats = NDArray[np.float32]
Shape = tuple[int | None, ...]
"""Sizes of a tensor; None for an axis whose size differs between calls."""


def find_files(peer: str, models: Path | None, patterns: Sequence[str]) -> list[Path]:
    """Return the file in the folder ``models`` that matches each pattern.

    ``peer``: the tracker's name, for errors. Raises InputError if a pattern matches no file, or several.
    """
    wanted = " and ".join(patterns)
    if models is None:
        raise InputError(f"peer {peer} needs {wanted}; give their folder with --peer-models DIR")
    if not models.is_dir():
        raise InputError(f"{models} is not a folder; --peer-models names the folder of {wanted}")
    files = []
    for pattern in patterns:
        found = sorted(models.glob(pattern))
        if len(found) != 1:
            names = f" ({', '.join(path.name for path in found)})" if found else ""
            raise InputError(
                f"{models} holds {len(found)} files {pattern}{names};"
                f" peer {peer} needs exactly one of each of {wanted}"
            )
        files += found
    return files


class PeerModel:
    """An opened network, whose inputs and outputs are float32 tensors of known names and shapes."""

    def __init__(
        self, path: Path, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape], threads: int
    ) -> None:
        """Open the file ``path``.

        ``inputs``, ``outputs``: expected shapes by name. ``threads``: CPU threads, 0: `default_threads`.
        Raises InputError: the file is no ONNX file, or has other tensors.
        """
        import onnxruntime

        self._path = path
        options = onnxruntime.SessionOptions()
        # The same threads as for the package's own sessions, so that times can be compared.
        set_threads(options, threads or default_threads(), onnxruntime.__version__)
        options.log_severity_level = 3
        try:
            content = path.read_bytes()
            self._session = _session(content, options)
            if _fixed_axes(self._session, inputs):
                self._session = _session(_with_open_sizes(content, path), options)
        except (InputError, OSError):
            raise
        except Exception as error:  # onnxruntime's errors share no base class
            raise InputError(
                f"{path} can't be loaded by onnxruntime {onnxruntime.__version__} ({first_line(error)});"
                " fetch the file again"
            ) from None
        self._names = list(outputs)
        _check(path, "input", self._session.get_inputs(), inputs)
        _check(path, "output", self._session.get_outputs(), outputs)

    def __call__(self, **inputs: Floats) -> list[Floats]:
        """Run the network. Returns the outputs, in the order in which the constructor received their names.

        Raises InputError: the file does not fit the peer's other file, or an output is not finite.
        """
        try:
            results: list[Floats] = self._session.run(self._names, inputs)
        except Exception as error:  # onnxruntime's errors share no base class
            raise InputError(
                f"{self._path} can't be run ({first_line(error)}); give two files of the same peer"
            ) from None
        for name, result in zip(self._names, results, strict=True):
            if not np.isfinite(result).all():
                raise InputError(
                    f"{self._path}: {name} has a number that is not finite; fetch the file again"
                )
        return results


def _session(content: bytes, options: Any) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _fixed_axes(session: Any, inputs: Mapping[str, Shape]) -> bool:
    """Return whether an input has a fixed size on an axis for which ``inputs`` needs several sizes."""
    return any(
        wanted is None and isinstance(size, int)
        for tensor in session.get_inputs()
        if tensor.name in inputs and len(tensor.shape) == len(inputs[tensor.name])
        for size, wanted in zip(tensor.shape, inputs[tensor.name], strict=True)
    )


def _with_open_sizes(content: bytes, path: Path) -> bytes:
    """Return the ONNX model with undeclared heights and widths.

    Convolutions accept every size, but onnxruntime accepts only declared ones. Published backbones declare
    only the size of the search region, and must be run on the smaller template too.
    """
    try:
        import onnx
    except ImportError:
        raise InputError(
            f"{path} declares one image size and must be changed for two, which needs onnx; pip install onnx"
        ) from None
    model = onnx.load_model_from_string(content)
    for value in (*model.graph.input, *model.graph.output):
        for number, axis in enumerate(value.type.tensor_type.shape.dim):
            if number >= 2:
                axis.dim_param = f"{value.name}_{number}"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())


def _check(path: Path, kind: str, tensors: Sequence[Any], wanted: Mapping[str, Shape]) -> None:
    found = {tensor.name: tensor for tensor in tensors}
    fits = set(found) == set(wanted) and all(
        found[name].type == "tensor(float)" and _matches(found[name].shape, shape)
        for name, shape in wanted.items()
    )
    if not fits:
        have = ", ".join(f"{tensor.name} {_text(tensor.shape)}" for tensor in tensors)
        need = ", ".join(f"{name} {_text(shape)}" for name, shape in wanted.items())
        raise InputError(
            f"{path} has the {kind}s {have}, expected float32 {need}; give the file of this peer"
        )


def _matches(shape: Sequence[int | str | None], wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(
        size == need if isinstance(size, int) and need is not None else True
        for size, need in zip(shape, wanted, strict=True)
    )


def _text(shape: Sequence[int | str | None]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
