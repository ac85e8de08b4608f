"""Says which package a command lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from efftam_ros.core.errors import InputError


@contextmanager
def packages_of(command: str, install: str = "") -> Iterator[None]:
    """Around the imports of a command: a package that is missing becomes an InputError that names it.

    ``install``: what pip has to install; default: the missing package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(
            f"{command} needs {error.name}, which is not installed; pip install {install or error.name}"
        ) from None
