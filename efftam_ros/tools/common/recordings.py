"""The option --rerun: the optional package efftam_workshop writes a recording for the Rerun viewer."""

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
    """A recording for the Rerun viewer, open for writing."""

    def write(
        self,
        bgr: NDArray[np.uint8],
        answers: Answers,
        *,
        part: str = "",
        truth: Sequence[float] | None = None,
    ) -> None:
        """Add an image and the tracks in it.

        ``bgr``: uint8 [H, W, 3]; ``answers``: tracks and masks by target id; ``part``: name of the sequence,
        if the run has several; ``truth``: the true box x, y, w, h, px, if it is known.
        """
        ...


def add_rerun_argument(group: argparse._ActionsContainer) -> None:
    """Add the option --rerun FILE.rrd."""
    group.add_argument(
        "--rerun",
        type=Path,
        metavar="FILE.rrd",
        help="recording for the Rerun viewer (extra [view]); each file is a run of its own name, and"
        " 'rerun a.rrd b.rrd' shows two runs of one input side by side",
    )


def rerun_output(path: Path | None) -> Output:
    """Return the output file of --rerun as an `Output`, which `check_outputs` can check. ``path``: the
    option's value, or None.

    Raises InputError if efftam_workshop is not installed, and ModuleNotFoundError if Rerun is not installed.
    """
    if path is not None:
        _writer()
        import rerun  # noqa: F401
    return Output("--rerun", path, "recording")


def open_recording(path: Path | None, name: str) -> AbstractContextManager[ViewerRecording | None]:
    """Return a context manager that yields an open recording, or None if ``path`` is None.

    ``name``: the viewer shows recordings of the same name together.
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
