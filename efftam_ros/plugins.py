"""Finds modules that the optional packages beside this one offer, by the entry points that they list."""

from __future__ import annotations

from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path


def plugin_module(package: str, group: str, name: str) -> str | None:
    """Return the dotted name of the module that a package offers; None where the package is not installed.

    The package lists its modules in its own ``entry_points.txt``, so that a checkout, a ROS workspace and a
    wheel find the same ones. Nothing is imported. Raises KeyError for a group or name that is not listed.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    points = ConfigParser()
    points.read(Path(spec.origin).with_name("entry_points.txt"), encoding="utf-8")
    return points[group][name]
