"""Wraps the calls that process a frame, so that a measurement can time them and add up the times by cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NETWORK = "network"
"""Cause of the calls that compute a graph of the network on the CPU."""
LAUNCH = "graph launch"
BINDING = "binding"
WAIT = "wait"
COPIES = "copies"
EVENTS = "events"
"""Cause of the CUDA driver's calls that no other cause covers, such as those for events and contexts."""
PREPROCESSING = "preprocessing"
BACK_END = "Python of the back end"
CAMERA_MOTION = "camera motion"
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
    IDENTITY,
    POLICY,
    PUBLISHING,
)
"""All causes of calls that are not the network's own computation."""

Watch = Callable[[str, str, Callable[..., Any]], Callable[..., Any]]
"""A function that receives a cause, a name and a function, and returns a wrapper of that function."""


def watch_methods(watch: Watch, cause: str, owner: object, *names: str, label: str = "") -> None:
    """Replace the named methods of an object by the wrappers that ``watch`` returns for them.

    ``watch`` receives ``label`` as the name of each method, or the method's own name if ``label`` is empty.
    """
    for name in names:
        setattr(owner, name, watch(cause, label or name, getattr(owner, name)))


def cause_of_driver_call(name: str) -> str:
    """Return the cause, one of `CAUSES`, to which a function of the CUDA driver with this name belongs."""
    if "Synchronize" in name:
        return WAIT
    if name.startswith(("cuMemcpy", "cuMemset")):
        return COPIES
    if "Launch" in name:
        return LAUNCH
    return EVENTS
