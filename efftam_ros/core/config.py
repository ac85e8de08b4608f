"""The tracker's settings: a dataclass. Each field has a description, with its unit, and a range or choices.

ROS parameters and command-line options are generated from these fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError, shown

DEFAULT_POLICY = "default"
POLICIES = (DEFAULT_POLICY, "samurai", "efficienttam")
"""Names of the policies: the default one, and two references that it is compared with."""
CAMERA_MOTIONS = ("auto", "off")
VIEWS = ("bundle", "auto", "full", "window")
SHARE = (0.0, 1.0)
"""Allowed range of a setting that is a probability, an overlap or another share."""
MAX_TARGETS = 8
"""Largest number of targets that can be followed at once."""
MAX_TEXT = 1024
"""Largest number of characters that a text setting, such as a path, may have."""


def setting(
    default: Any,
    text: str,
    *,
    within: tuple[float, float] | None = None,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], object] = bool,
) -> Any:
    """Return a dataclass field for one setting.

    Args:
        default: Value where the user gives none.
        text: Description, with the unit.
        within: Smallest and largest allowed number; None: any.
        choices: Allowed texts; empty: any.
        check: Called with the value before all other checks. It raises InputError for a value whose error
            needs another remedy than the range or the choices.
    """
    meta = {"text": text, "within": within, "choices": choices, "check": check}
    return field(default=default, metadata=meta)


@dataclass(frozen=True)
class CheckedSettings:
    """Base of dataclasses whose fields are made by `setting`. Creating one raises InputError for a bad
    value."""

    def __post_init__(self) -> None:
        for f in fields(self):
            check_setting(f.name, getattr(self, f.name), f.metadata)


@dataclass(frozen=True)
class TrackerConfig(CheckedSettings):
    """All settings of the tracker. Times are in seconds between image stamps, lengths in image px."""

    policy: str = setting(
        "default", "how the target is chosen among the candidates and what is remembered", choices=POLICIES
    )
    view: str = setting(
        "bundle",
        "region given to the network: full: the whole image; window: a square around the target; auto: by the"
        " target's size; bundle: as the bundle states",
        choices=VIEWS,
    )
    window_factor: float = setting(
        0.0, "side of the window in target sizes; 0: the bundle's default", within=(0.0, 20.0)
    )
    lost_after: float = setting(
        1.0,
        "time after which COASTING becomes LOST, counted from the last image that confirmed the target, s",
        within=(0.0, 60.0),
    )
    max_gap: float = setting(
        2.0, "gap between image stamps that makes the target LOST, s", within=(0.01, 3600.0)
    )
    acquire_frames: int = setting(3, "consistent frames after a selection until TRACKING", within=(1, 100))
    reacquire_frames: int = setting(
        3, "consistent frames after COASTING or LOST until TRACKING", within=(1, 100)
    )
    search_windows: int = setting(
        6, "windows searched per image for a missed target (policy default)", within=(1, 64)
    )
    camera_motion: str = setting(
        "auto",
        "source of the camera's motion (policy default); auto: the images; off: the camera is assumed to"
        " rest",
        choices=CAMERA_MOTIONS,
    )
    identity: bool = setting(
        True,
        "use the identity network, which compares what is seen with the selected object (policy default)",
    )
    least_confidence: float = setting(
        0.0,
        "least confidence of a measured box; with less confidence the target counts as missed (policy"
        " default, with the identity network)",
        within=SHARE,
    )
    presence_threshold: float = setting(
        0.5, "probability of presence above which the target counts as seen", within=SHARE
    )
    memory_quality: float = setting(
        0.5, "predicted IoU above which a frame may be remembered (policy default)", within=SHARE
    )
    gate_mahalanobis: float = setting(
        9.21,
        "largest squared Mahalanobis distance of a measured centre (2 dof; 9.21 = 99 %)",
        within=(0.1, 1e6),
    )
    gate_iou: float = setting(
        0.3,
        "IoU with the predicted box above which a box is accepted although it exceeds gate_mahalanobis",
        within=SHARE,
    )
    motion_weight: float = setting(
        0.2, "weight of the overlap with the predicted box when choosing a candidate", within=SHARE
    )


def check_setting(name: str, value: Any, metadata: Any) -> None:
    """Raise InputError when ``value`` is outside the range or the choices of a `setting` field.

    ``name``: name of the field, for the error. ``metadata``: metadata of the dataclass field that `setting`
    made.
    """
    choices, within = metadata.get("choices"), metadata.get("within")
    metadata.get("check", bool)(value)
    if choices and value not in choices:
        raise InputError(f"{name} is {shown(value)}; choose one of {', '.join(choices)}")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise InputError(f"{name} is {shown(value)}, {len(value)} characters; give at most {MAX_TEXT}")
    if within is not None and not (isinstance(value, Real) and within[0] <= value <= within[1]):
        raise InputError(f"{name} is {shown(value)}; it must lie in [{within[0]:g}, {within[1]:g}]")


def expanded(path: str | Path) -> Path:
    """Return the path with ``~`` replaced by the user's home folder.

    Raises InputError where the home folder is not known, as in a container whose user has no entry.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(
            f"{path} lies in the home folder, which is not known: set HOME, or give another path"
        ) from None
