"""The page on which a target in a video is drawn, served by the optional package efftam_operator."""

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
    """A page in a browser: a person draws the target on one image, then watches the others."""

    def ask(self, bgr: NDArray[np.uint8], stamp_ns: int, progress: VideoProgress | None = None) -> Prompt:
        """Show an image, uint8 [H, W, 3], until a target is drawn on it; returns what was drawn, image px."""
        ...

    def show(self, bgr: NDArray[np.uint8], track: Track, progress: VideoProgress | None = None) -> None:
        """Show an image and what was tracked in it. The pixels must stay unchanged afterwards."""
        ...


class ServedPage(Protocol):
    """A page that is served. ``page``: for the images; ``urls``: where it opens; ``announcement``: lines for
    a terminal that report it."""

    @property
    def page(self) -> DrawingPage: ...

    @property
    def urls(self) -> list[str]: ...

    @property
    def announcement(self) -> str: ...


def open_page(address: str, port: int, token: str, over: str) -> AbstractContextManager[ServedPage]:
    """Serve the page inside a ``with`` block.

    Args:
        address: Address to listen on.
        port: Port to listen on; 0: a free one.
        token: What a page must send; "": a new one if the address is not local.
        over: What the page shows once the block has ended, one line.

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
    """Open an address in the browser of a person who sits at this computer; returns whether there is one: a
    terminal and a desktop, not a login over the network."""
    has_desktop = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if not (has_desktop and sys.stderr.isatty()) or "SSH_CONNECTION" in os.environ:
        return False
    return webbrowser.open(url)
