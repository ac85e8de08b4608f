"""Report what is installed, what can run here, what is missing and the command that installs it.

Exit code 0 when the default back end can run, else 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.backends import DEFAULT_BACKEND, TABLE, text_of
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
OPEN_SECONDS = 60.0
"""To open a back end: shorter than compiling a network or building engines, which takes minutes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="findings as JSON")
    parser.add_argument("--jetson", action="store_true", help="only what a Jetson needs, in order")
    text = "write findings, versions, reports of engines and checks, and times to FILE, to send with a fault"
    parser.add_argument("--report", type=Path, metavar="FILE", help=text)


def run(args: argparse.Namespace) -> int:
    facts = environment()
    findings: list[Finding] = []
    needed = chain(python_findings(), machine_findings(facts), backend_findings())
    asked = jetson_findings() if args.jetson else chain(needed, tool_findings(), ros_findings())
    for finding in asked:
        if not args.json:
            if not findings or findings[-1].section != finding.section:
                print(f"\n{finding.section}")
            print(f"  {MARKS[finding.state]}  {finding.name:<20}  {finding.found}", flush=True)
            if finding.remedy:
                same = (f.name for f in findings if f.remedy and finding.remedy.startswith(f.remedy))
                told = next(same, None)
                print(f"{'':28}-> {finding.remedy if told is None else f'as for {told}'}", flush=True)
        findings.append(finding)
    runs = Finding(BACKENDS_SECTION, DEFAULT_BACKEND, "ok", "")[:3] in (found[:3] for found in findings)
    if args.jetson:
        runs = not any(finding.state == "wrong" for finding in findings)
    report = {"runs": runs, "environment": facts, "findings": [f._asdict() for f in findings]}
    if args.report:
        _write(args.report, report)
    if args.json:
        print(json.dumps(report, indent=1))
    elif args.jetson:
        print(f"\n{'Ready' if runs else 'NOT ready'} to build engines: efftam build")
    else:
        print(f"\nThe default back end ({DEFAULT_BACKEND}) {'can run' if runs else 'can NOT run'} here.")
    return 0 if runs else 1


def _write(path: Path, report: dict[str, Any]) -> None:
    """The report with those of engines and checks. Nothing else is read: no image, no variable of the
    environment but those of the findings; the user's folder is written as ~. Raises InputError."""
    from efftam_ros.runtime.device.opening import engine_folder

    kept = {one.name: text_of(one) for one in sorted(engine_folder().glob("*.json"))}
    text = json.dumps(report | {"kept": kept}, indent=1).replace(str(Path.home()), "~")
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"report {path} can't be written ({error.strerror}); name another file") from error


def backend_findings() -> Iterator[Finding]:
    """One finding per row of the table: it is opened in a process of its own and runs a frame."""
    for row in TABLE:
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
