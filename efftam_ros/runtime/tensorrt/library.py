"""The installed TensorRT (10.0 to 11.4) or TensorRT-RTX (from 1.2) behind one interface."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any

from efftam_ros.core.errors import BackendError, one_line
from efftam_ros.runtime.backends import ENGINES
from efftam_ros.runtime.cuda.api import DeviceFacts
from efftam_ros.runtime.device.graph import GraphError

TENSORRT, RTX = "tensorrt", "tensorrt_rtx"
OLDEST = {TENSORRT: (10, 0), RTX: (1, 2)}
KEPT_MESSAGES = 200


class TensorRTError(GraphError):
    """A failed TensorRT call while engines run; the text is one line with TensorRT's messages."""


class MessageLog:
    """The latest warnings and errors of TensorRT, which reports the cause of a failure nowhere else."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str, str]] = deque(maxlen=KEPT_MESSAGES)
        self._count = 0

    @property
    def position(self) -> int:
        """Number of messages so far, for ``since``."""
        return self._count

    def add(self, severity: str, text: str) -> None:
        """Add a message of severity INTERNAL_ERROR, ERROR or WARNING; others are dropped."""
        if severity in ("INTERNAL_ERROR", "ERROR", "WARNING"):
            self._count += 1
            self._kept.append((self._count, severity, one_line(text)))

    def errors(self, since: int = 0) -> list[str]:
        return [text for at, severity, text in tuple(self._kept) if at > since and severity != "WARNING"]

    def warnings(self, since: int = 0) -> list[str]:
        return [text for at, severity, text in tuple(self._kept) if at > since and severity == "WARNING"]

    def reason(self, since: int) -> str:
        """The errors since a position in one line."""
        return "; ".join(dict.fromkeys(self.errors(since))) or "TensorRT gave no reason"


@dataclass(frozen=True)
class Library:
    """``name``: "tensorrt" or "tensorrt_rtx"; ``version``: such as (10, 3, 0); ``logger``: the ILogger to
    give to all objects, which writes to ``log``."""

    module: Any
    name: str
    version: tuple[int, ...]
    log: MessageLog
    logger: Any

    @classmethod
    def of(cls, module: Any, name: str) -> Library:
        """Wrap an imported TensorRT. Raises BackendError when it is older than 10.0 or broken."""
        found = re.match(r"\d+(\.\d+)*", str(getattr(module, "__version__", "")))
        if found is None or not hasattr(module, "ILogger"):
            raise BackendError(
                f"{name} is broken: {module.__name__} has no version or no logger", remedy(name)
            )
        version = tuple(int(number) for number in found.group().split("."))
        if version < OLDEST[name]:
            needed = ".".join(map(str, OLDEST[name]))
            raise BackendError(
                f"{name} {found.group()} is too old: {needed} or newer is needed", remedy(name)
            )
        log = MessageLog()
        return cls(module, name, version, log, _make_logger(module, log))

    @property
    def dotted(self) -> str:
        """The version as "10.3.0"."""
        return ".".join(map(str, self.version))

    @property
    def targets(self) -> tuple[str, ...]:
        """Of TensorRT-RTX, such as "SM86"; none for TensorRT, which builds for the installed GPU."""
        known = getattr(self.module, "ComputeCapability", None) if self.name == RTX else None
        return () if known is None else tuple(name for name in known.__members__ if re.match(r"SM\d", name))

    def require_device(self, facts: DeviceFacts) -> None:
        """Raises BackendError when this library has no code for the GPU.

        To be called before a TensorRT Runtime is constructed, which ends the process where no driver works:
        ``facts`` exist only where one does.
        """
        if not isinstance(facts, DeviceFacts):
            raise TypeError(f"an opened GPU is needed, not {facts!r}; call open_device first")
        if self.name == RTX and target_of(facts) not in self.targets:
            raise BackendError(
                f"TensorRT-RTX {self.dotted} has no code for {facts.name}"
                f" (compute capability {'.'.join(map(str, facts.compute_capability))};"
                f" it has {', '.join(self.targets)})",
                "install TensorRT, or choose the onnxruntime back end",
            )

    def start(self, kind: str) -> Any:
        """A "Builder" or a "Runtime". Raises BackendError when TensorRT can't use the driver."""
        log_start = self.log.position
        try:
            return getattr(self.module, kind)(self.logger)
        except (TypeError, RuntimeError) as error:  # pybind's answer to a null pointer
            raise BackendError(
                f"{self.name} {self.dotted} does not start ({self.log.reason(log_start)})",
                "update the NVIDIA driver, or install a TensorRT that is built for its version of CUDA",
            ) from error


def load_library(name: str | None = None) -> Library:
    """Import TensorRT, or TensorRT-RTX, or the first of the two that is installed (None).

    Needs no driver. Every call returns the same library, because a process keeps its first logger. Raises
    BackendError when none is installed, or when the first one found can't be imported or is too old.
    """
    if name is not None and name not in OLDEST:
        raise ValueError(f"no library {name!r}; choose {TENSORRT} or {RTX}")
    for candidate in (TENSORRT, RTX) if name is None else (name,):
        if candidate not in _loaded:
            module = _import(candidate)
            if module is not None:
                _loaded[candidate] = Library.of(module, candidate)
        if candidate in _loaded:
            return _loaded[candidate]
    wanted = name or TENSORRT
    raise BackendError(f"{wanted} is not installed for {sys.executable}", remedy(wanted))


def target_of(facts: DeviceFacts) -> str:
    """The GPU as TensorRT-RTX names it, "SM86" for compute capability 8.6."""
    major, minor = facts.compute_capability
    return f"SM{major}{minor}"


def remedy(name: str) -> str:
    """How to install a library on this platform."""
    if name == RTX:
        return "pip install --no-deps tensorrt-rtx-cu13-bindings tensorrt-rtx-cu13-libs"
    if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64"):
        return ENGINES.install.here()
    return f"TensorRT is made for Linux on x86_64 and aarch64, not {sys.platform} on {platform.machine()}"


_loaded: dict[str, Library] = {}


def _import(name: str) -> Any | None:
    """The module, or None where it is not installed.

    The code is in the package *_bindings; the package with the short name is optional.
    """
    for module in (name, f"{name}_bindings"):
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            continue  # without an origin: a folder of that name, which Python treats as a namespace package
        try:
            return importlib.import_module(module)
        except Exception as error:  # a missing library, or any error of its initialisation
            raise BackendError(
                f"{name} is installed but can't be imported ({one_line(error)})", remedy(name)
            ) from error
    return None


def _make_logger(module: Any, log: MessageLog) -> Any:
    class Logger(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            log.add(str(severity.name), msg)

    return Logger()
