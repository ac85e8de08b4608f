"""Report what is installed, what can run here, what is missing and the command that installs it.

Exit code 0 when the default back end can run, else 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import chain

from efftam_ros.runtime.backends import DEFAULT_BACKEND, TABLE
from efftam_ros.tools.doctor.checks import (
    Finding,
    environment,
    machine_findings,
    python_findings,
    ros_findings,
    tool_findings,
)
from efftam_ros.tools.doctor.probe import answer

MARKS = {"ok": "ok", "absent": "--", "wrong": "!!", "untried": "??"}
BACKENDS_SECTION = "back ends"
OPEN_SECONDS = 60.0
"""To open a back end: shorter than compiling a network or building engines, which takes minutes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="findings as JSON")


def run(args: argparse.Namespace) -> int:
    facts = environment()
    findings: list[Finding] = []
    needed = chain(python_findings(), machine_findings(facts), backend_findings())
    for finding in chain(needed, tool_findings(), ros_findings()):
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
    if args.json:
        report = {"runs": runs, "environment": facts, "findings": [f._asdict() for f in findings]}
        print(json.dumps(report, indent=1))
    else:
        print(f"\nThe default back end ({DEFAULT_BACKEND}) {'can run' if runs else 'can NOT run'} here.")
    return 0 if runs else 1


def backend_findings() -> Iterator[Finding]:
    """One finding per row of the table: it is opened in a process of its own and runs a frame."""
    for row in TABLE:
        if sys.stderr.isatty():
            print(f"opening {row.name}, at most {OPEN_SECONDS:g} s", end="\r", file=sys.stderr, flush=True)
        found = answer("open", row.name, seconds=OPEN_SECONDS)
        if "network" in found:
            runs = f"runs {found['network']} in {row.auto}; offers {', '.join(('auto', *row.precisions))}"
            runs = "; ".join(filter(None, (runs, found["notice"])))
            yield Finding(BACKENDS_SECTION, row.name, "ok", runs)
        elif found.get("slow"):  # it may be compiling for this GPU
            remedy = f"efftam bench --frames 1 --backend {row.name}"
            yield Finding(BACKENDS_SECTION, row.name, "untried", found["problem"], remedy)
        else:
            state = "absent" if row.gpu and found["remedy"] else "wrong"
            remedy = found["remedy"] or f"install it again: {row.install.here()}"
            yield Finding(BACKENDS_SECTION, row.name, state, found["problem"], remedy)
