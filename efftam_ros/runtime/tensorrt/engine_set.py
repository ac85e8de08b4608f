"""The engines of one bundle for one GPU: their keys, options and place in the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efftam_ros import __version__
from efftam_ros.core.errors import BackendError, one_line
from efftam_ros.runtime.bundle import Bundle, file_sha256
from efftam_ros.runtime.cuda.device import DeviceFacts
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.tensorrt.build_options import BuildOptions, profiles_of
from efftam_ros.runtime.tensorrt.library import Library, load_library
from efftam_ros.runtime.tensorrt.runner import TrtGraphs
from efftam_ros.runtime.tensorrt.store import EngineKey, EngineMissing, EngineStore

if TYPE_CHECKING:
    from efftam_ros.runtime.tensorrt.calibration import Calibration

TF32 = "where no product changes by it"
"""The rule by which engines are built with TF32, as part of their key."""


def open_engines(
    bundle: Bundle, precision: str, facts: DeviceFacts, stream: Stream, folder: Path
) -> TrtGraphs:
    """The engines of a bundle that were built in ``precision`` ("fp16", "fp32", "int8") into ``folder``."""
    return EngineSet(bundle, precision, load_library(), facts, folder).opener(stream)


def engine_options(bundle: Bundle, precision: str, module: str) -> BuildOptions:
    """Options of the engine of a bundle's graph; whether TF32 is on depends on the graph that is built."""
    return BuildOptions(precision, profiles=profiles_of(bundle.graphs[module].inputs))


class EngineSet:
    """Engines of ``bundle`` in one precision ("fp32", "fp16", "int8") for the opened GPU ``facts``, in
    ``folder``."""

    def __init__(
        self,
        bundle: Bundle,
        precision: str,
        library: Library,
        facts: DeviceFacts,
        folder: Path,
        calibration: Calibration | None = None,
    ) -> None:
        """``calibration``: of INT8 engines to build; None for that of the stored ones. Raises BackendError
        when the library has no code for the GPU."""
        library.require_device(facts)
        self.bundle, self.precision, self.library, self.facts = bundle, precision, library, facts
        self.store = EngineStore(folder)
        self._calibration = calibration

    def options(self, module: str) -> BuildOptions:
        return engine_options(self.bundle, self.precision, module)

    def key(self, module: str) -> EngineKey:
        """The key includes the version of this package, which converts the graphs to FP16, and what INT8
        engines were calibrated with. Raises BackendError for INT8 without a calibration."""
        options = {**self.options(module).parts, "tf32": TF32, "efftam_ros": __version__}
        if self.precision == "int8":
            options["calibration"] = (self._calibration or self._stored_calibration()).sha256
        return EngineKey(
            module,
            self._sha256(module),
            self.library.name,
            self.library.dotted,
            self.facts.name,
            self.facts.capability,
            self.facts.multiprocessors,
            self.facts.memory_gib,
            self.precision,
            options,
        )

    def plan(self, module: str) -> bytes:
        """The stored engine. Raises BackendError with the reason when none fits."""
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
        """As `EngineStore.load_or_build` for all `GRAPHS`."""
        keys = [self.key(module) for module in GRAPHS]
        self.store.load_or_build(self.bundle.spec.name, keys, build, message, force)
        if self._calibration is not None:
            self._calibration.write(self._calibration_path)

    def report(self, module: str) -> dict[str, Any] | None:
        """The report stored with the engine; None without an engine."""
        return self.store.report(self.bundle.spec.name, self.key(module))

    def opener(self, stream: Stream, plans: Callable[[str], bytes] | None = None) -> TrtGraphs:
        """Opens the stored engines, or those of ``plans``."""
        tables = {name: (graph.inputs, graph.outputs) for name, graph in self.bundle.graphs.items()}
        return TrtGraphs(self.library, self.facts, stream, tables, plans or self.plan)

    @property
    def _calibration_path(self) -> Path:
        from efftam_ros.runtime.tensorrt.calibration import calibration_path

        return calibration_path(self.store.folder, self.bundle.spec.name)

    def _stored_calibration(self) -> Calibration:
        # Of INT8 engines alone.
        from efftam_ros.runtime.tensorrt.calibration import Calibration

        remedy = f"efftam build {self.bundle.folder} --precision int8"
        try:
            return Calibration.read(self._calibration_path)
        except FileNotFoundError:
            reason = f"there is no calibration of {self.bundle.spec.name} in {self.store.folder}"
        except (OSError, ValueError) as error:
            reason = f"calibration {self._calibration_path} can't be read ({one_line(error)})"
        raise BackendError(reason, remedy)

    def _sha256(self, module: str) -> str:
        """Hash of the graph and of its external weights."""
        path = self.bundle.graphs[module].path
        files = [path, *sorted(path.parent.glob("*.weights"))]
        return hashlib.sha256("".join(map(file_sha256, files)).encode()).hexdigest()
