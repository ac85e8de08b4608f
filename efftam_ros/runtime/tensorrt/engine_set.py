"""The engines of one bundle for one GPU: options, calibration, keys, and access to the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import BackendError, InputError, one_line
from efftam_ros.runtime.backends import power_mode
from efftam_ros.runtime.bundle import SHA256, Bundle, Tensor, file_sha256
from efftam_ros.runtime.cuda.api import DeviceFacts
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.tensorrt.library import Library, load_library
from efftam_ros.runtime.tensorrt.runner import TrtGraphs
from efftam_ros.runtime.tensorrt.store import EngineKey, EngineMissing, EngineStore, write_atomically
from efftam_ros.version import __version__

AXES: Mapping[str, tuple[int, int, int]] = {
    "n": (1, 1, 256),  # number of points of a prompt
    "t": (1, 2, 257),  # number of tokens of a prompt; tracked frames have two
    "T": (1, 7, 24),  # number of maps in the memory attention; the memory has 24 slots
    "P": (1, 16, 24),  # number of pointers in the memory attention
}
"""By name of a dynamic axis in a bundle's graphs: its smallest, usual and largest size."""


@dataclass(frozen=True)
class ShapeRange:
    """The shapes that an input with dynamic axes can have. TensorRT optimises an engine for ``usual``."""

    name: str
    smallest: tuple[int, ...]
    usual: tuple[int, ...]
    largest: tuple[int, ...]


def profiles_of(inputs: Mapping[str, Tensor]) -> tuple[ShapeRange, ...]:
    """Return the ranges of shapes of those inputs that have dynamic axes.

    ``inputs``: the inputs of a graph. Raises InputError for a dynamic axis that is not in `AXES`.
    """
    ranges = []
    for name, tensor in inputs.items():
        unknown = [axis for axis in tensor.shape if isinstance(axis, str) and axis not in AXES]
        if unknown:
            raise InputError(
                f"axis {unknown[0]} of input {name} has no sizes; known are {', '.join(sorted(AXES))}"
            )
        if any(isinstance(axis, str) for axis in tensor.shape):
            smallest, usual, largest = (
                tuple(AXES[axis][which] if isinstance(axis, str) else axis for axis in tensor.shape)
                for which in range(3)
            )
            ranges.append(ShapeRange(name, smallest, usual, largest))
    return tuple(ranges)


@dataclass(frozen=True)
class Calibration:
    """The clip of images with which INT8 engines were calibrated.

    Attributes:
        clip: Name of the clip.
        frames: Number of its frames.
        sha256: Hash of its pixels, of the target's box and of the method of calibration.
    """

    clip: str
    frames: int
    sha256: str

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read a calibration from a file. Raises OSError, and ValueError if the content is no calibration."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(fields, dict) or set(fields) != {"clip", "frames", "sha256"}:
            raise ValueError("it does not have the entries clip, frames and sha256")
        if not SHA256.fullmatch(str(fields["sha256"])):
            raise ValueError(f"its sha256 is {str(fields['sha256'])[:80]!r}")
        return cls(str(fields["clip"]), int(fields["frames"]), fields["sha256"])

    def write(self, path: Path) -> None:
        """Write the calibration to a file that `read` can read. Raises OSError."""
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())


def calibration_path(folder: Path, bundle: str) -> Path:
    """Return the path of the file with the calibration of a bundle's INT8 engines in this folder.

    ``bundle``: name of the bundle.
    """
    return folder / f"{bundle}-int8.calibration.json"


TF32 = "where no product changes by it"
"""The rule by which builds of engines use TF32.

It is a part of the key, so that engines are built again if the rule changes.
"""


def open_engines(
    bundle: Bundle, precision: str, facts: DeviceFacts, stream: Stream, folder: Path
) -> TrtGraphs:
    """Return the `GraphOpener` for the engines of a bundle that are stored in ``folder``.

    ``precision``: "fp16", "fp32" or "int8". Raises BackendError if TensorRT is missing or can't be used.
    """
    return EngineSet(bundle, precision, load_library(), facts, folder).opener(stream)


class EngineSet:
    """The engines of a bundle in one precision ("fp32", "fp16", "int8") for this GPU, stored in a folder."""

    def __init__(
        self,
        bundle: Bundle,
        precision: str,
        library: Library,
        facts: DeviceFacts,
        folder: Path,
        calibration: Calibration | None = None,
    ) -> None:
        """Describe a set of engines; none is loaded or built yet.

        ``calibration``: the calibration with which INT8 engines are built; None: that in ``folder``.
        """
        self.bundle, self.precision, self.library, self.facts = bundle, precision, library, facts
        self.store = EngineStore(folder)
        self._calibration = calibration
        self.power_mode = power_mode()

    def profiles(self, module: str) -> tuple[ShapeRange, ...]:
        return profiles_of(self.bundle.graphs[module].inputs)

    def key(self, module: str) -> EngineKey:
        """Return the key of the engine of a graph.

        It includes the version of this package, because this package converts the graphs to FP16. For INT8 it
        includes the calibration. Raises BackendError for INT8 if there is no calibration.
        """
        profiles = [asdict(wanted) for wanted in self.profiles(module)]
        options: dict[str, Any] = {"profiles": profiles, "tf32": TF32, "efftam_ros": __version__}
        if self.precision == "int8":
            options["calibration"] = (self._calibration or self._stored_calibration()).sha256
        return EngineKey(
            module,
            self._sha256(module),
            self.library.dotted,
            self.facts.name,
            self.facts.capability,
            self.facts.multiprocessors,
            self.facts.memory_gib,
            self.precision,
            options,
        )

    def plan(self, module: str) -> bytes:
        """Return the stored engine of a graph, serialized.

        Raises BackendError, with the reason, if no stored engine fits this bundle, GPU and TensorRT.
        """
        found = self.store.load(self.bundle.spec.name, self.key(module))
        if isinstance(found, EngineMissing):
            raise BackendError(
                f"there is no engine for {module} in {self.store.folder}: {found.reason}",
                f"efftam build {self.bundle.folder} --precision {self.precision}",
            )
        return found

    def load_or_build(
        self,
        build: Callable[[], Mapping[str, tuple[bytes, Mapping[str, Any]]]],
        message: Callable[[str], None],
        force: bool,
    ) -> None:
        """Build and store the engines of all graphs if one is missing or ``force`` is True.

        For ``build`` and ``message`` see `EngineStore.load_or_build`. The calibration that the constructor
        received is stored too.
        """
        keys = [self.key(module) for module in GRAPHS]
        self.store.load_or_build(self.bundle.spec.name, keys, build, message, force)
        if self._calibration is not None:
            self._calibration.write(self._calibration_path)

    def report(self, module: str) -> dict[str, Any] | None:
        """Return the report that is stored with the engine of a graph; None without an engine."""
        return self.store.report(self.bundle.spec.name, self.key(module))

    def opener(self, stream: Stream, plans: Callable[[str], bytes] | None = None) -> TrtGraphs:
        """Return the `GraphOpener` for the stored engines.

        ``plans``: returns the serialized engine of a graph; if given, stored engines are not used.
        """
        tables = {name: (graph.inputs, graph.outputs) for name, graph in self.bundle.graphs.items()}
        notice = "" if plans else self._changed_power_mode()
        return TrtGraphs(self.library, stream, tables, plans or self.plan, notice)

    def _changed_power_mode(self) -> str:
        """Return a line for the user if the board had another power mode when engines were built, or ""."""
        report = self.report(GRAPHS[0]) if self.power_mode else None
        built_in = (report or {}).get("power_mode") or self.power_mode
        if built_in == self.power_mode:
            return ""
        return (
            f"the engines were built in power mode {built_in}, and the board is in {self.power_mode} now; new"
            f" engines may be faster: efftam build {self.bundle.folder} --precision {self.precision} --force"
        )

    @property
    def _calibration_path(self) -> Path:
        return calibration_path(self.store.folder, self.bundle.spec.name)

    def _stored_calibration(self) -> Calibration:
        remedy = f"efftam build {self.bundle.folder} --precision int8"
        try:
            return Calibration.read(self._calibration_path)
        except FileNotFoundError:
            reason = f"there is no calibration of {self.bundle.spec.name} in {self.store.folder}"
        except (OSError, ValueError) as error:
            reason = f"calibration {self._calibration_path} can't be read ({one_line(error)})"
        raise BackendError(reason, remedy)

    def _sha256(self, module: str) -> str:
        """Return a hash of the file of a graph and of all files with weights in the bundle's folder."""
        path = self.bundle.graphs[module].path
        files = [path, *sorted(path.parent.glob("*.weights"))]
        return hashlib.sha256("".join(map(file_sha256, files)).encode()).hexdigest()
