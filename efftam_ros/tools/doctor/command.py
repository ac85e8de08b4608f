"""Report what can run here, what is missing and the command that installs it.

Without options, tracking on the CPU is checked. The exit code is 0 if everything that was checked can run,
else 1. With VIDEO the command only opens the video, and prints its size, its rate and its video tracks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from efftam_ros.images.camera import Camera, open_source
from efftam_ros.runtime.backends import DEFAULT_BACKEND, TABLE, text_of
from efftam_ros.tools.common.options import add_source_argument
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.doctor.checks import (
    Finding,
    environment,
    machine_findings,
    python_findings,
    ros_findings,
    tool_findings,
)
from efftam_ros.tools.doctor.jetson import jetson_findings
from efftam_ros.tools.doctor.probe import answer

MARKS = {"ok": "ok", "absent": "--", "wrong": "!!", "untried": "??"}
BACKENDS_SECTION = "back ends"
# Parts of ROS 2 that the node can run without.
OPTIONAL_PARTS = ("launch_ros", "cv_bridge", "vision_msgs", "Fast DDS profile")
OPEN_SECONDS = 60.0
"""Longest time to open a back end, s. This is too short to compile a network or build engines, which takes
minutes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_argument(parser, nargs="?", metavar="VIDEO")
    parser.add_argument("--gpu", action="store_true", help="check the GPU: driver, packages, back ends")
    text = "check the node and the page: ROS 2, messages, profiles"
    parser.add_argument("--ros", action="store_true", help=text)
    parser.add_argument("--flight", action="store_true", help="check the bridge to the autopilot")
    text = "check all of these, and the packages that single commands need"
    parser.add_argument("--all", action="store_true", help=text)
    parser.add_argument("--jetson", action="store_true", help="check only what a Jetson needs, in order")
    parser.add_argument("--json", action="store_true", help="print the findings of --all as JSON")
    text = "write findings, versions, reports of engines and checks, and times to FILE, for a fault report"
    parser.add_argument("--report", type=Path, metavar="FILE", help=text)


def run(args: argparse.Namespace) -> int:
    if args.video is not None:
        return _describe(args.video)
    check_outputs([Output("--report", args.report)])
    every = args.all or args.json or args.report is not None
    facts = environment()
    asked: list[tuple[str, list[Finding]]] = []
    if args.jetson:
        asked.append(("this Jetson", list(jetson_findings())))
    else:
        asked += _areas(args, facts, every)
    # What a Jetson lacks besides is a matter of speed, or needed by one back end or one camera alone.
    verdicts = {area: _verdict(findings, absent_counts=not args.jetson) for area, findings in asked}
    findings = [finding for _, found in asked for finding in found]
    if every and not args.jetson:
        findings += [f for f in tool_findings() if f not in findings]
    runs = Finding(BACKENDS_SECTION, DEFAULT_BACKEND, "ok", "")[:3] in (found[:3] for found in findings)
    if args.jetson:
        runs = not any(finding.state == "wrong" for finding in findings)
    report = {"runs": runs, "environment": facts, "findings": [f._asdict() for f in findings]}
    if args.report:
        _write(args.report, report)
    if args.json:
        print(json.dumps(report, indent=1))
        return 0 if runs else 1
    for area, problem in verdicts.items():
        print(f"{area}: {problem or 'can run here'}")
    _print(findings)
    return 1 if any(verdicts.values()) else 0


def _describe(video: str | Path) -> int:
    """Open a video and print its properties. Returns the exit code 0. Raises InputError if it can't be
    opened."""
    source = open_source(video, report=print)
    what = f"{source.fps:g} images/s" + ("" if source.count is None else f", {source.count} images")
    size = f"{source.width}x{source.height} px"
    if isinstance(source, Camera):
        what = f"live, {source.decoder}"
        source.close()
    print(f"{source.name}: {size}, {what}")
    if source.note:
        print(f"{source.name}: {source.note}")
    return 0


def _areas(args: argparse.Namespace, facts: dict[str, Any], every: bool) -> list[tuple[str, list[Finding]]]:
    """Return the title and the findings of each area that the options name. The first area is the CPU.

    ``facts``: the result of `environment`; ``every``: all areas, whatever the options.
    """
    cpu = [*python_findings(), *backend_findings(gpu=False)]
    areas = [("tracking on the CPU", cpu)]
    if args.gpu or every:
        areas.append(("GPU", [*machine_findings(facts), *backend_findings(gpu=True)]))
    else:
        cpu += [found for found in machine_findings(facts) if found.name == "platform"]
    if args.ros or every:
        areas.append(("ROS 2", [*ros_findings(), *tool_findings("operator")]))
    if args.flight or every:
        areas.append(("flight", list(tool_findings("flight"))))
    return areas


def _verdict(findings: list[Finding], absent_counts: bool = True) -> str:
    """Return a line on why an area can't be used; "" if it can.

    An area with back ends can be used if at least one of them runs or was not tried. Another area can be used
    if nothing is wrong, and only optional parts are absent. ``absent_counts``: whether an absent part that is
    not optional makes an area unusable.
    """
    lacking = [f.name for f in findings if f.state == "wrong"]
    backends = [f for f in findings if f.section == BACKENDS_SECTION]
    if any(f.state in ("ok", "untried") for f in backends):
        return ""
    if absent_counts and not backends:
        lacking += [f.name for f in findings if f.state == "absent" and f.name not in OPTIONAL_PARTS]
    lacking = lacking or [f.name for f in backends[:1]]
    return f"can NOT run here, see {', '.join(lacking)}" if lacking else ""


def _print(findings: list[Finding]) -> None:
    """Print the findings by section. A remedy that was printed before is not repeated."""
    printed: list[Finding] = []
    for finding in sorted(
        findings, key=lambda f: list(dict.fromkeys(g.section for g in findings)).index(f.section)
    ):
        if not printed or printed[-1].section != finding.section:
            print(f"\n{finding.section}")
        print(f"  {MARKS[finding.state]}  {finding.name:<20}  {finding.found}")
        if finding.remedy:
            same = (f.name for f in printed if f.remedy and finding.remedy.startswith(f.remedy))
            name = next(same, None)
            print(f"{'':28}-> {finding.remedy if name is None else f'as for {name}'}", flush=True)
        printed.append(finding)


def _write(path: Path, report: dict[str, Any]) -> None:
    """Write the findings, and the JSON reports that are stored beside the engines, to a file.

    The file can be sent to others. It contains no image, and no environment variable except those in the
    findings. The home folder is written as ~.
    """
    from efftam_ros.runtime.device.opening import engine_folder

    kept = {one.name: text_of(one) for one in sorted(engine_folder().glob("*.json"))}
    text = json.dumps(report | {"kept": kept}, indent=1).replace(str(Path.home()), "~")
    write_text(path, text + "\n")


def backend_findings(gpu: bool | None = None) -> Iterator[Finding]:
    """Yield one finding for each back end. Each is opened in a process of its own, and tracks a few frames.

    ``gpu``: True for only the back ends that need a GPU, False for only the others, None for all.
    """
    for row in TABLE:
        if gpu not in (None, row.gpu):
            continue
        if sys.stderr.isatty():
            print(f"opening {row.name}, at most {OPEN_SECONDS:g} s", end="\r", file=sys.stderr, flush=True)
        found = answer("open", row.name, seconds=OPEN_SECONDS)
        if "network" in found:
            runs = f"runs {found['network']} in {row.auto}; offers {', '.join(('auto', *row.precisions))}"
            runs = "; ".join(filter(None, (runs, f"{found['frame_ms']:.1f} ms a frame", found["notice"])))
            yield Finding(BACKENDS_SECTION, row.name, "ok", runs)
        elif found.get("slow"):  # the back end may be compiling the network for this GPU
            remedy = f"efftam bench --frames 1 --backend {row.name}"
            yield Finding(BACKENDS_SECTION, row.name, "untried", found["problem"], remedy)
        else:
            state = "absent" if row.gpu and found["remedy"] else "wrong"
            remedy = found["remedy"] or f"install it again: {row.install.here()}"
            yield Finding(BACKENDS_SECTION, row.name, state, found["problem"], remedy)
