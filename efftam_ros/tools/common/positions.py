"""Computes the targets' positions on the ground for a recorded video, by the optional package
efftam_flight."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Track
from efftam_ros.plugins import plugin_module

PACKAGE = "efftam_flight"
TRACK_ENDINGS = (".kml", ".geojson", ".json")


class Positions(Protocol):
    """Computes the ground positions of the targets of one video."""

    def locate(self, tracks: Mapping[int, Track]) -> dict[int, dict[str, Any]]:
        """Return the position of each target as JSON values, by target id. ``tracks``: of one image, by
        id."""
        ...

    def write(self, path: Path) -> int:
        """Write the ground tracks of all targets as KML or GeoJSON, by the suffix of ``path``.

        Returns the number of points. Raises OSError.
        """
        ...


class TrackAction(argparse.Action):
    """Action of --track: a number selects the video track; a file name states where to write ground
    tracks."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if values.lstrip("-").isdecimal():
            namespace.track = int(values)
        elif Path(values).suffix.lower() in TRACK_ENDINGS:
            namespace.ground_track = Path(values)
        else:
            parser.error(
                f"argument --track: {values!r} is neither the number of a video track nor a file that ends in"
                f" {' or '.join(TRACK_ENDINGS[:2])}"
            )


def add_position_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --poses, --field-of-view, --terrain and --target-height.

    The related option --track FILE is added by `add_image_arguments`.
    """
    group = parser.add_argument_group("position on the ground")
    group.add_argument(
        "--poses",
        type=Path,
        metavar="FILE",
        help="the camera's poses, CSV or DJI's SRT (default: the SRT beside the video, where --track FILE or"
        " --terrain is given)",
    )
    group.add_argument(
        "--field-of-view",
        type=float,
        metavar="DEGREES",
        help="horizontal, of the video's picture (default: from the SRT's focal length)",
    )
    group.add_argument("--terrain", type=Path, metavar="FILE.tif", help="ground heights, GeoTIFF")
    group.add_argument(
        "--target-height",
        type=float,
        default=0.0,
        metavar="M",
        help="height of the middle of the target's box above the ground (default 0; a person: 0.9)",
    )
    parser.set_defaults(ground_track=None)


def open_positions(args: argparse.Namespace, size: tuple[int, int]) -> Positions | None:
    """Return the computation of positions that the options describe; None if no such option was given.

    ``args``: with the options of `add_position_arguments` and --track; ``size``: width and height of the
    video, px. Raises InputError: the package is not installed, a file can't be read, the camera's poses or
    its field of view are not known.
    """
    if args.poses is None and args.ground_track is None and args.terrain is None:
        return None
    module = plugin_module(PACKAGE, "efftam.positions", "recorded")
    if module is None:
        raise InputError(
            f"the package {PACKAGE}, which computes positions, is not installed; install it (the wheel of"
            " efftam_ros has it), or leave out --poses, --terrain and --track FILE"
        )
    recorded: Any = import_module(module)
    poses = args.poses
    if poses is None and isinstance(args.video, Path):
        poses = recorded.beside(args.video)
    if poses is None:
        raise InputError(
            "the camera's poses are not known, and no SRT file lies beside the video: give --poses FILE"
        )
    found: Positions = recorded.video_positions(
        poses, size, args.field_of_view, args.terrain, args.target_height
    )
    return found
