"""The option --rerun: recordings for the Rerun viewer, which the optional package efftam_workshop writes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.plugins import plugin_module
from efftam_ros.tools.common.following import Answers
from efftam_ros.tools.common.outputs import Output

PACKAGE = "efftam_workshop"


class ViewerRecording(Protocol):
    """A recording that is being written."""

    def write(
        self,
        bgr: NDArray[np.uint8],
        answers: Answers,
        *,
        part: str = "",
        truth: Sequence[float] | None = None,
    ) -> None:
        """Add an image (BGR uint8 [H, W, 3]) and the answers to it, by target.

        ``part``: name of a sequence, where the run has several; ``truth``: the true box x, y, w, h, px.
        """
        ...


def add_rerun_argument(group: argparse._ActionsContainer) -> None:
    """Add --rerun FILE.rrd."""
    group.add_argument(
        "--rerun",
        type=Path,
        metavar="FILE.rrd",
        help="recording for the Rerun viewer (extra [view]); each file is a run of its own name, and"
        " 'rerun a.rrd b.rrd' shows two runs of one input side by side",
    )


def rerun_output(path: Path | None) -> Output:
    """Return what --rerun writes, to be checked with the other outputs.

    Raises InputError where the package that writes it is not installed, ModuleNotFoundError without Rerun.
    """
    if path is not None:
        _writer()
        import rerun  # noqa: F401
    return Output("--rerun", path, "recording")


def open_recording(path: Path | None, name: str) -> AbstractContextManager[ViewerRecording | None]:
    """Write ``path`` for the length of a with block; yields None where ``path`` is None.

    The viewer shows files of the same ``name`` together.
    """
    if path is None:
        return nullcontext()
    opened: AbstractContextManager[ViewerRecording] = _writer().rerun_file(path, name)
    return opened


def _writer() -> Any:
    module = plugin_module(PACKAGE, "efftam.recordings", "rerun")
    if module is None:
        raise InputError(
            f"the package {PACKAGE}, which writes recordings, is not installed; install it (the wheel of"
            " efftam_ros has it), or leave out --rerun"
        )
    return import_module(module)
