"""Lets the calls that a frame consists of be timed: what each is for, and how a timed one takes its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NETWORK = "network"
"""A graph of the network computes on the host."""
LAUNCH = "graph launch"
BINDING = "binding"
WAIT = "wait"
COPIES = "copies"
EVENTS = "events"
"""Other calls of the CUDA driver: events, contexts."""
PREPROCESSING = "preprocessing"
BACK_END = "Python of the back end"
CAMERA_MOTION = "camera motion"
POINTS = "points"
IDENTITY = "identity"
POLICY = "policy"
PUBLISHING = "publishing"
CAUSES = (
    LAUNCH,
    BINDING,
    WAIT,
    COPIES,
    EVENTS,
    PREPROCESSING,
    BACK_END,
    CAMERA_MOTION,
    POINTS,
    IDENTITY,
    POLICY,
    PUBLISHING,
)
"""The causes of time in a frame during which the network does not compute."""

Watch = Callable[[str, str, Callable[..., Any]], Callable[..., Any]]
"""Gets a cause, a name and a call, and returns what takes the call's place."""


def watch_methods(watch: Watch, cause: str, owner: object, *names: str, label: str = "") -> None:
    """Replace methods of an object by what ``watch`` makes of them. ``label``: their name in place of the
    method's own."""
    for name in names:
        setattr(owner, name, watch(cause, label or name, getattr(owner, name)))


def cause_of_driver_call(name: str) -> str:
    """Return what a function of the CUDA driver is for, by its name."""
    if "Synchronize" in name:
        return WAIT
    if name.startswith(("cuMemcpy", "cuMemset")):
        return COPIES
    if "Launch" in name:
        return LAUNCH
    return EVENTS
