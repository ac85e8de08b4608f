"""Report what can run here, what is missing and the command that installs it.

Without options: tracking on the CPU. Exit code 0 when all that was asked for can run, else 1.
With VIDEO: what is read of it, and which video tracks it has.
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
# Of ROS 2: what the node does without.
OPTIONAL_PARTS = ("launch_ros", "cv_bridge", "vision_msgs", "Fast DDS profile")
OPEN_SECONDS = 60.0
"""To open a back end: shorter than compiling a network or building engines, which takes minutes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_argument(parser, nargs="?", metavar="VIDEO")
    parser.add_argument("--gpu", action="store_true", help="the GPU: driver, packages, back ends")
    parser.add_argument("--ros", action="store_true", help="the node and the page: ROS 2, messages, profiles")
    parser.add_argument("--flight", action="store_true", help="the autopilot's bridge")
    parser.add_argument("--all", action="store_true", help="all of these, and what single commands need")
    parser.add_argument("--jetson", action="store_true", help="only what a Jetson needs, in order")
    parser.add_argument("--json", action="store_true", help="the findings of --all as JSON")
    text = "write findings, versions, reports of engines and checks, and times to FILE, to send with a fault"
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
    """Return what was asked for, tracking on the CPU first."""
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
    """Return why an area can't be used, "" where it can: something is wrong, or none of several back ends
    runs, or, if ``absent_counts``, something is absent that is not optional."""
    lacking = [f.name for f in findings if f.state == "wrong"]
    backends = [f for f in findings if f.section == BACKENDS_SECTION]
    if any(f.state in ("ok", "untried") for f in backends):
        return ""
    if absent_counts and not backends:
        lacking += [f.name for f in findings if f.state == "absent" and f.name not in OPTIONAL_PARTS]
    lacking = lacking or [f.name for f in backends[:1]]
    return f"can NOT run here, see {', '.join(lacking)}" if lacking else ""


def _print(findings: list[Finding]) -> None:
    """Print the findings by section; each remedy once."""
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
    """Write the report with those of engines and checks. Nothing else is read: no image, no variable of the
    environment but those of the findings; the user's folder is written as ~."""
    from efftam_ros.runtime.device.opening import engine_folder

    kept = {one.name: text_of(one) for one in sorted(engine_folder().glob("*.json"))}
    text = json.dumps(report | {"kept": kept}, indent=1).replace(str(Path.home()), "~")
    write_text(path, text + "\n")


def backend_findings(gpu: bool | None = None) -> Iterator[Finding]:
    """Yield one finding per row of the table.

    ``gpu``: True: only back ends for a GPU, False: only the others, None: all. Each is opened in a process
    of its own and runs a frame.
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
        elif found.get("slow"):  # it may be compiling for this GPU
            remedy = f"efftam bench --frames 1 --backend {row.name}"
            yield Finding(BACKENDS_SECTION, row.name, "untried", found["problem"], remedy)
        else:
            state = "absent" if row.gpu and found["remedy"] else "wrong"
            remedy = found["remedy"] or f"install it again: {row.install.here()}"
            yield Finding(BACKENDS_SECTION, row.name, state, found["problem"], remedy)
