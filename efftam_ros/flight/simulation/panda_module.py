"""panda3d's classes, or what to install to have them."""

from __future__ import annotations

try:
    from panda3d import core as panda
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("the rendered world needs panda3d: pip install panda3d") from error

# It looks for an X server even when it renders into memory, and prints a warning, which is suppressed.
panda.loadPrcFileData("", "audio-library-name null\nnotify-level error\nnotify-level-x11display fatal")

__all__ = ["panda"]
