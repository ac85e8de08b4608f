"""Tracks targets through a camera stream: mask, box and velocity for every image.

``import efftam_ros as et`` gives `Tracker`, `Result`, `State`, `InputError` and `BackendError`, which are
loaded when they are first used: the parts without a network can be imported alone. Generated message modules
are installed in a package of the same name; extending the path finds them also when the checkout comes first
on ``sys.path``.
"""

import os
from contextlib import suppress
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from efftam_ros.version import __version__

if TYPE_CHECKING:
    from efftam_ros.api import BackendError, InputError, Result, State, Tracker

# onnxruntime 1.31 writes a device id into the user's cache and reports to its vendor from its first import
# on; switching that off afterwards is too late. Whoever wants it sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

with suppress(FileNotFoundError):  # the working folder is on the path, and was removed
    __path__ = extend_path(__path__, __name__)
__all__ = ["BackendError", "InputError", "Result", "State", "Tracker", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from efftam_ros import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
