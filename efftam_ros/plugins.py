"""Finds modules of optional packages, such as efftam_workshop, by the entry points that they list."""

from __future__ import annotations

from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path


def plugin_module(package: str, group: str, name: str) -> str | None:
    """Return the module that a package lists under this group and name; None if the package is not installed.

    The result is what the line in the file ``entry_points.txt`` in the package's folder gives, for example
    ``efftam_workshop.bag``, or ``module:Name`` for one name in a module. The file is read directly, so that a
    checkout, a ROS workspace and a wheel give the same result. Nothing is imported. Raises KeyError for a
    group or name that is not listed.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    points = ConfigParser()
    points.read(Path(spec.origin).with_name("entry_points.txt"), encoding="utf-8")
    return points[group][name]
