"""The installed TensorRT (10.0 to 11.4)."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from collections import deque
from dataclasses import dataclass
from functools import cache
from typing import Any

from efftam_ros.core.errors import BackendError, one_line
from efftam_ros.runtime.backends import ENGINES
from efftam_ros.runtime.device.graph import GraphError

OLDEST = (10, 0)
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
        """Return the errors since a position in one line."""
        return "; ".join(dict.fromkeys(self.errors(since))) or "TensorRT gave no reason"


@dataclass(frozen=True)
class Library:
    """``version``: such as (10, 3, 0); ``logger``: the ILogger to give to all objects, which writes to
    ``log``."""

    module: Any
    version: tuple[int, ...]
    log: MessageLog
    logger: Any

    @classmethod
    def of(cls, module: Any) -> Library:
        """Wrap an imported TensorRT. Raises BackendError when it is older than 10.0 or broken."""
        found = re.match(r"\d+(\.\d+)*", str(getattr(module, "__version__", "")))
        if found is None or not hasattr(module, "ILogger"):
            raise BackendError(f"TensorRT is broken: {module.__name__} has no version or no logger", remedy())
        version = tuple(int(number) for number in found.group().split("."))
        if version < OLDEST:
            needed = ".".join(map(str, OLDEST))
            raise BackendError(f"TensorRT {found.group()} is too old: {needed} or newer is needed", remedy())
        log = MessageLog()
        return cls(module, version, log, _make_logger(module, log))

    @property
    def dotted(self) -> str:
        """The version as "10.3.0"."""
        return ".".join(map(str, self.version))

    def start(self, kind: str) -> Any:
        """Return a "Builder" or a "Runtime". Needs a working driver, without which TensorRT ends the process.
        Raises BackendError when TensorRT can't use the driver."""
        log_start = self.log.position
        try:
            return getattr(self.module, kind)(self.logger)
        except (TypeError, RuntimeError) as error:  # pybind's answer to a null pointer
            raise BackendError(
                f"TensorRT {self.dotted} does not start ({self.log.reason(log_start)})",
                "update the NVIDIA driver, or install a TensorRT that is built for its version of CUDA",
            ) from error


@cache
def load_library() -> Library:
    """Import TensorRT, once: a process keeps its first logger. Needs no driver. Raises BackendError when it
    is not installed, can't be imported or is too old."""
    module = _import()
    if module is None:
        raise BackendError(f"TensorRT is not installed for {sys.executable}", remedy())
    return Library.of(module)


def remedy() -> str:
    """Return how to install TensorRT on this platform."""
    if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64"):
        return ENGINES.install.here()
    return f"TensorRT is made for Linux on x86_64 and aarch64, not {sys.platform} on {platform.machine()}"


def _import() -> Any | None:
    """Return the module, or None where it is not installed.

    The code is in the package tensorrt_bindings; the package with the short name is optional.
    """
    for module in ("tensorrt", "tensorrt_bindings"):
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            continue  # without an origin: a folder of that name, which Python treats as a namespace package
        try:
            return importlib.import_module(module)
        except Exception as error:  # a missing library, or any error of its initialisation
            raise BackendError(
                f"TensorRT is installed but can't be imported ({one_line(error)})", remedy()
            ) from error
    return None


def _make_logger(module: Any, log: MessageLog) -> Any:
    class Logger(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            log.add(str(severity.name), msg)

    return Logger()
