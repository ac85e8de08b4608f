"""The engines of one bundle for one GPU: what they must have been built from, and where they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from efftam_ros import __version__
from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.bundle import Bundle, file_sha256
from efftam_ros.runtime.cuda.device import DeviceFacts
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.tensorrt.build_options import BuildOptions, profiles_of
from efftam_ros.runtime.tensorrt.library import Library
from efftam_ros.runtime.tensorrt.runner import TrtGraphs
from efftam_ros.runtime.tensorrt.store import EngineKey, EngineMissing, EngineStore


class EngineSet:
    """Engines of ``bundle`` in one precision ("fp32", "fp16") for the opened GPU ``facts``, in ``folder``."""

    def __init__(
        self, bundle: Bundle, precision: str, library: Library, facts: DeviceFacts, folder: Path
    ) -> None:
        """Raises BackendError when the library has no code for the GPU."""
        library.require_device(facts)
        self.bundle, self.precision, self.library, self.facts = bundle, precision, library, facts
        self.store = EngineStore(folder)

    def options(self, module: str) -> BuildOptions:
        return BuildOptions(self.precision, profiles=profiles_of(self.bundle.graphs[module].inputs))

    def key(self, module: str) -> EngineKey:
        """FP16 graphs are made from the bundle's by this version of the package, which is part of the key."""
        major, minor = self.facts.compute_capability
        return EngineKey(
            module,
            self._sha256(module),
            self.library.name,
            self.library.dotted,
            self.facts.name,
            f"{major}.{minor}",
            self.precision,
            {**self.options(module).parts, "efftam_ros": __version__},
        )

    def plan(self, module: str) -> bytes:
        """The kept engine. Raises BackendError saying why there is none that may be used."""
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

    def report(self, module: str) -> dict[str, Any] | None:
        """What was kept beside the engine; None without one."""
        return self.store.report(self.bundle.spec.name, self.key(module))

    def opener(self, stream: Stream, plans: Callable[[str], bytes] | None = None) -> TrtGraphs:
        """Runs the kept engines, or ``plans``."""
        tables = {name: (graph.inputs, graph.outputs) for name, graph in self.bundle.graphs.items()}
        return TrtGraphs(self.library, self.facts, stream, tables, plans or self.plan)

    def _sha256(self, module: str) -> str:
        """Of the graph and of weights beside it."""
        path = self.bundle.graphs[module].path
        files = [path, *sorted(path.parent.glob("*.weights"))]
        return hashlib.sha256("".join(map(file_sha256, files)).encode()).hexdigest()
