"""Tracks targets through a camera stream: mask, box and velocity for every image.

``import efftam_ros as et`` gives `Tracker`, `Result`, `State`, `InputError` and `BackendError`. They are
loaded when they are first used, so that a submodule such as `efftam_ros.messages` can be imported without the
code of the network.

ROS installs the generated message modules in another folder that is also named ``efftam_ros``. ``__path__``
is extended so that Python finds them also when a checkout comes first on ``sys.path``.
"""

import os
from contextlib import suppress
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from efftam_ros.version import __version__

if TYPE_CHECKING:
    from efftam_ros.api import BackendError, InputError, Result, State, Tracker

# When onnxruntime 1.31 is imported, it writes a device id into the user's cache and starts to send usage
# data to its vendor. Only a variable that is set before the import prevents this. A user who wants to send
# the data sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

with suppress(FileNotFoundError):  # raised if sys.path has the working folder, and this folder was removed
    __path__ = extend_path(__path__, __name__)
__all__ = ["BackendError", "InputError", "Result", "State", "Tracker", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from efftam_ros import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
