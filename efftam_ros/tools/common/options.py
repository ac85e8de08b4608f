"""Command line options that several commands share: source, network, back end, tracker settings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from efftam_ros.core.config import POLICIES, VIEWS, TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.images.camera import is_live
from efftam_ros.images.levels import AUTO
from efftam_ros.images.streams.opening import DEFAULT_TRACK
from efftam_ros.runtime.backends import (
    BACKENDS,
    DEFAULT_BACKEND,
    PRECISIONS,
    TABLE,
    PipelineConfig,
    backend_of,
)
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.tools.common.terminal import print_table


def add_bundle_argument(parser: argparse.ArgumentParser) -> None:
    """Add the optional argument BUNDLE. `open_bundle` opens its value."""
    parser.add_argument(
        "bundle", type=Path, nargs="?", metavar="BUNDLE", help="folder (default: the shipped bundle)"
    )


def open_bundle(folder: Path | None) -> Bundle:
    """Open the bundle in ``folder``; None: the bundle that ships with the package.

    Raises InputError if the bundle is missing or damaged.
    """
    return default_bundle() if folder is None else Bundle.load(folder)


def add_network_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --bundle, --backend, --precision and --threads."""
    group = parser.add_argument_group("network")
    add_bundle_option(group)
    add_backend_arguments(group)


def add_bundle_option(group: argparse._ActionsContainer) -> None:
    """Add --bundle."""
    text = "folder of the network (default: the shipped one)"
    group.add_argument("--bundle", type=Path, metavar="DIR", help=text)


def add_backend_arguments(group: argparse._ActionsContainer) -> None:
    """Add --backend, --precision and --threads."""
    add_backend_argument(group, BACKENDS, DEFAULT_BACKEND)
    add_precision_argument(group)
    add_threads_argument(group)


def add_threads_argument(group: argparse._ActionsContainer) -> None:
    text = next(str(f.metadata["text"]) for f in fields(PipelineConfig) if f.name == "threads")
    group.add_argument("--threads", type=int, default=0, metavar="N", help=text)


def pipeline_config(args: argparse.Namespace, max_targets: int = 1, **more: Any) -> PipelineConfig:
    """Return the configuration that the options of `add_network_arguments` describe.

    ``args`` may lack some of these options; ``max_targets``: how many targets can be followed at once;
    ``more``: further fields. Raises InputError if a value is out of range.
    """
    names = ("bundle", "backend", "precision", "threads")
    given = {name: value for name in names if (value := getattr(args, name, None)) is not None} | more
    return PipelineConfig(max_targets=max_targets, **(given | {"bundle": str(given.get("bundle") or "")}))


def add_backend_argument(group: argparse._ActionsContainer, names: Sequence[str], default: str) -> None:
    """Add --backend. ``names``: the allowed back ends; ``default``: one of them."""

    def parse(text: str) -> str:
        try:
            name = backend_of(text).name
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if name not in names:
            raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(names)}")
        return name

    listed = f"one of {', '.join(names)} (default: {default})"
    group.add_argument("--backend", type=parse, default=default, metavar="NAME", help=listed)


def add_precision_argument(group: argparse._ActionsContainer) -> None:
    """Add --precision, with the values of `PRECISIONS`.

    Whether the chosen back end offers the precision is checked later, when the back end is opened.
    """
    offered = "; ".join(f"{row.name}: {', '.join((row.auto, *row.variants[1:]))}" for row in TABLE)
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="auto",
        help=f"auto (default): the first one listed here for the back end ({offered}); tf32: FP32 whose"
        " products may be rounded",
    )


def add_quiet_argument(group: argparse._ActionsContainer, text: str = "no progress bar") -> None:
    group.add_argument("--quiet", action="store_true", help=text)


def add_source_argument(parser: argparse.ArgumentParser, **more: Any) -> None:
    """Add the argument SOURCE, stored as ``video``: a path, or a text for a live source.

    ``more``: further parameters of `add_argument`.
    """
    parser.add_argument(
        "video",
        type=lambda text: text if is_live(text) else Path(text),
        help="video file, folder of images, camera (/dev/video0) or stream (rtsp://..., udp://@:PORT)",
        **{"metavar": "SOURCE", **more},
    )


def add_image_arguments(
    group: argparse._ActionsContainer, track_action: type[argparse.Action] | None = None
) -> None:
    """Add --fps, --track and --range, for videos and folders of images.

    ``track_action``: the action of --track in a command whose --track also accepts a file to write.
    """
    text = (
        "images per second, in place of the times in a file (default: its own times; for images of a folder"
        " 30); not for a camera or a live stream"
    )
    group.add_argument("--fps", type=float, help=text)
    text = "number of the video track, where a file or stream has several (default: its default one)"
    if track_action is None:
        group.add_argument("--track", type=int, default=DEFAULT_TRACK, metavar="N", help=text)
    else:
        text += "; or a file .kml or .geojson, to which the targets' tracks on the ground are written"
        group.add_argument("--track", action=track_action, default=DEFAULT_TRACK, metavar="N|FILE", help=text)
    add_range_argument(group)


def report(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr, flush=True)


def add_range_argument(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--range",
        default=AUTO,
        metavar="LOW,HIGH",
        help="levels of 16-bit images that become black and white (default auto: percentiles, smoothed)",
    )


def list_of(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a parser for an option with a list of values, such as "A,B"; it is passed as ``type`` to
    argparse.

    ``choices``: the allowed values. The parser returns them without repetitions.
    """

    def parse(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        if not names:
            raise argparse.ArgumentTypeError(f"{text!r} names none of {', '.join(choices)}")
        for name in names:
            if name not in choices:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(choices)}")
        return list(dict.fromkeys(names))

    return parse


def add_tracker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --view, --policy and --set NAME=VALUE, by which every field of TrackerConfig can be set."""
    group = parser.add_argument_group("tracker")
    group.add_argument(
        "--view",
        choices=VIEWS,
        help="what the network sees (default: the bundle's); window: for targets that are small in the"
        " picture; full: for those that fill much of it; auto: by size",
    )
    group.add_argument(
        "--policy",
        choices=POLICIES,
        help="default: for use; samurai and efficienttam: the published rules, to compare with",
    )
    add_settings_argument(group)


def add_settings_argument(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--set",
        dest="settings",
        action=_SettingAction,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the tracker, repeatable; --set help lists them",
    )


class _SettingAction(argparse.Action):
    """Action of --set: appends NAME=VALUE to the list. For "help" it prints all settings and ends the
    program."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: Any = None
    ) -> None:
        if values == "help":
            rows = [
                [f.name, str(f.default), _range(f.metadata), f.metadata["text"]]
                for f in fields(TrackerConfig)
            ]
            print_table(["setting", "default", "values", "meaning"], rows)
            parser.exit()
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), values])


SWITCH = {"true": True, "false": False}


def _range(metadata: Mapping[str, Any]) -> str:
    if metadata["choices"]:
        return " ".join(metadata["choices"])
    return "{:g} to {:g}".format(*metadata["within"]) if metadata["within"] else "true false"


def tracker_config(settings: list[str], **chosen: str | None) -> TrackerConfig:
    """Return the TrackerConfig that the options describe.

    ``settings``: texts NAME=VALUE; ``chosen``: further fields by name, None if not given. Raises InputError:
    no ``=``, unknown setting, not a number, out of range, given twice.
    """
    kinds = {f.name: type(f.default) for f in fields(TrackerConfig) if f.default is not MISSING}
    values: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or name not in kinds:
            raise InputError(f"--set {text!r} is not NAME=VALUE with NAME one of {', '.join(kinds)}")
        if name in values:
            raise InputError(f"--set {text!r}: {name} is already given as {values[name]!r}; give it once")
        try:
            values[name] = SWITCH[value] if kinds[name] is bool else kinds[name](value)
        except KeyError:
            raise InputError(f"--set {text!r}: {value!r} is neither true nor false") from None
        except ValueError:
            raise InputError(
                f"--set {text!r}: {value!r} is not a number of type {kinds[name].__name__}"
            ) from None
    return TrackerConfig(**values)
