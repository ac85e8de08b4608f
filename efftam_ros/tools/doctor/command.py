"""Report what is installed, what can run here, what is missing and the command that installs it.

Exit code 0 when the default back end can run, else 1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from efftam_ros.runtime.pipeline import DEFAULT_BACKEND
from efftam_ros.tools.doctor.backends import SECTION as BACKENDS_SECTION
from efftam_ros.tools.doctor.backends import backend_findings
from efftam_ros.tools.doctor.finding import Finding
from efftam_ros.tools.doctor.gpu import gpu_findings
from efftam_ros.tools.doctor.gpu_facts import gather
from efftam_ros.tools.doctor.packages import python_findings, tool_findings
from efftam_ros.tools.doctor.ros import ros_findings
from efftam_ros.tools.doctor.system import System

MARKS = {"ok": "ok", "absent": "--", "wrong": "!!", "untried": "??"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="findings as JSON")


def run(args: argparse.Namespace) -> int:
    findings = list(examine(System()))
    runs = any(
        f.section == BACKENDS_SECTION and f.name == DEFAULT_BACKEND and f.state == "ok" for f in findings
    )
    if args.json:
        print(json.dumps({"runs": runs, "findings": [asdict(f) for f in findings]}, indent=1))
    else:
        print("\n".join(page(findings)))
        result = "can run" if runs else "can NOT run"
        print(f"\nThe default back end ({DEFAULT_BACKEND}) {result} here.")
    return 0 if runs else 1


def examine(system: System) -> Iterator[Finding]:
    """All findings, in the order of the report."""
    facts = gather(system)
    yield from python_findings()
    yield from gpu_findings(facts)
    yield from backend_findings(system, facts)
    yield from tool_findings()
    yield from ros_findings()


def page(findings: list[Finding]) -> Iterator[str]:
    """The lines of the report. A command shared by consecutive findings is printed once, under the last."""
    width = max(len(f.name) for f in findings)
    section = ""
    for finding, following in zip(findings, [*findings[1:], None], strict=True):
        if finding.section != section:
            if section:
                yield ""
            section = finding.section
            yield section
        yield f"  {MARKS[finding.state]}  {finding.name.ljust(width)}  {finding.found}"
        if finding.remedy:
            yield f"      {' ' * width}  -> {finding.remedy}"
        if finding.install and (following is None or following.install != finding.install):
            yield f"      {' ' * width}  -> here: {finding.install}"
