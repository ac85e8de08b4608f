"""Loads the installed TensorRT (10.0 to 11.4), and collects its messages."""

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
    """A call of TensorRT failed while an engine ran. The text is one line with TensorRT's messages."""


class MessageLog:
    """The latest warnings and errors that TensorRT logged.

    They are collected, because TensorRT states the cause of a failure only in its log.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str, str]] = deque(maxlen=KEPT_MESSAGES)
        self._count = 0

    @property
    def position(self) -> int:
        """Number of messages so far, which other methods take as ``since``."""
        return self._count

    def add(self, severity: str, text: str) -> None:
        """Add a message if its severity is INTERNAL_ERROR, ERROR or WARNING."""
        if severity in ("INTERNAL_ERROR", "ERROR", "WARNING"):
            self._count += 1
            self._kept.append((self._count, severity, one_line(text)))

    def errors(self, since: int = 0) -> list[str]:
        return [text for at, severity, text in tuple(self._kept) if at > since and severity != "WARNING"]

    def warnings(self, since: int = 0) -> list[str]:
        return [text for at, severity, text in tuple(self._kept) if at > since and severity == "WARNING"]

    def reason(self, since: int) -> str:
        """Return all errors after the message number ``since``, in one line."""
        return "; ".join(dict.fromkeys(self.errors(since))) or "TensorRT gave no reason"


@dataclass(frozen=True)
class Library:
    """The imported TensorRT.

    Attributes:
        module: The Python module.
        version: Its version, such as (10, 3, 0).
        log: The messages of TensorRT.
        logger: The ILogger with which all objects of TensorRT must be made. It writes to ``log``.
    """

    module: Any
    version: tuple[int, ...]
    log: MessageLog
    logger: Any

    @classmethod
    def of(cls, module: Any) -> Library:
        """Wrap the imported module of TensorRT. Raises BackendError if it is older than 10.0 or broken."""
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
        """The version as text, such as "10.3.0"."""
        return ".".join(map(str, self.version))

    def start(self, kind: str) -> Any:
        """Return a new object of TensorRT of this kind, "Builder" or "Runtime".

        The driver must work, because TensorRT ends the process without one. Raises BackendError if TensorRT
        can't use the driver.
        """
        log_start = self.log.position
        try:
            return getattr(self.module, kind)(self.logger)
        except (TypeError, RuntimeError) as error:  # pybind11 raises these if the constructor returns null
            raise BackendError(
                f"TensorRT {self.dotted} does not start ({self.log.reason(log_start)})",
                "update the NVIDIA driver, or install a TensorRT that is built for its version of CUDA",
            ) from error


@cache
def load_library() -> Library:
    """Import TensorRT. This needs no driver.

    All calls return the same object, because TensorRT uses the first logger of a process for all objects.
    Raises BackendError if TensorRT is not installed, can't be imported or is too old.
    """
    module = _import()
    if module is None:
        raise BackendError(f"TensorRT is not installed for {sys.executable}", remedy())
    return Library.of(module)


def remedy() -> str:
    """Return the command that installs TensorRT on this platform, or why there is none."""
    if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64"):
        return ENGINES.install.here()
    return f"TensorRT is made for Linux on x86_64 and aarch64, not {sys.platform} on {platform.machine()}"


def _import() -> Any | None:
    """Import TensorRT and return its module; None if it is not installed.

    The code of TensorRT is in the package tensorrt_bindings. The package tensorrt may be missing. Raises
    BackendError if the import fails.
    """
    for module in ("tensorrt", "tensorrt_bindings"):
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            continue  # not installed; a folder with the same name has a spec, but no origin
        try:
            return importlib.import_module(module)
        except Exception as error:  # a missing library, or any error of the module's initialisation
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
