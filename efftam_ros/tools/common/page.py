"""Opens a web page on which a person draws the target in a video. The package efftam_operator serves it."""

from __future__ import annotations

import os
import sys
import webbrowser
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Prompt, Track
from efftam_ros.messages.reports import VideoProgress
from efftam_ros.plugins import plugin_module

PACKAGE = "efftam_operator"
INSTALL = "install it (the wheel of efftam_ros has it), or select the target with --box or --point"


class DrawingPage(Protocol):
    """A page in a browser, on which a person draws the target on one image and then watches the others."""

    def ask(self, bgr: NDArray[np.uint8], stamp_ns: int, progress: VideoProgress | None = None) -> Prompt:
        """Show an image until a person draws a target on it, and return the selection, image px.

        ``bgr``: uint8 [H, W, 3]; ``stamp_ns``: the image's stamp, ns; ``progress``: position in the video,
        None if the source has no end.
        """
        ...

    def show(self, bgr: NDArray[np.uint8], track: Track, progress: VideoProgress | None = None) -> None:
        """Show an image with its track.

        ``bgr``: uint8 [H, W, 3], which must not be changed afterwards; ``progress``: see `ask`.
        """
        ...


class ServedPage(Protocol):
    """A page while its server runs.

    ``page``: shows the images; ``urls``: addresses at which a browser opens the page; ``announcement``: lines
    for the terminal that list the addresses.
    """

    @property
    def page(self) -> DrawingPage: ...

    @property
    def urls(self) -> list[str]: ...

    @property
    def announcement(self) -> str: ...


def open_page(address: str, port: int, token: str, over: str) -> AbstractContextManager[ServedPage]:
    """Return a context manager that serves the page inside a ``with`` block.

    Args:
        address: IP address that the server listens on.
        port: Port that the server listens on; 0: any free port.
        token: Secret that a browser must send; "": a new one is made unless the address is local.
        over: One line, which the page shows after the ``with`` block has ended.

    Raises:
        InputError: The package is not installed, or the address or port can't be used.
    """
    module = plugin_module(PACKAGE, "efftam.page", "drawn")
    if module is None:
        raise InputError(f"the package {PACKAGE}, which serves the page, is not installed; {INSTALL}")
    served: Any = import_module(module)
    opened: AbstractContextManager[ServedPage] = served.drawn_page(address, port, token, over)
    return opened


def show_in_browser(url: str) -> bool:
    """Open an address in this computer's browser, if a person sits at the computer. Return whether a browser
    opened.

    A person is assumed if stderr is a terminal, there is a desktop, and the login is not over SSH.
    """
    has_desktop = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if not (has_desktop and sys.stderr.isatty()) or "SSH_CONNECTION" in os.environ:
        return False
    return webbrowser.open(url)
