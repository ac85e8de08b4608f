"""Report section on back ends: each is opened in a separate process and runs one frame."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing

from efftam_ros.runtime.pipeline import BACKENDS, DEFAULT_BACKEND
from efftam_ros.tools.common.progress import progress_bar
from efftam_ros.tools.doctor.finding import Finding
from efftam_ros.tools.doctor.gpu_facts import Facts
from efftam_ros.tools.doctor.install import driver_line, install_line
from efftam_ros.tools.doctor.isolated import Answer, ask
from efftam_ros.tools.doctor.system import System

SECTION = "back ends"
# Shorter than compiling a network or building engines, which takes minutes.
OPEN_SECONDS = 60.0


def backend_findings(system: System, facts: Facts, backends: Sequence[str] = BACKENDS) -> Iterator[Finding]:
    """One finding per back end. Back ends of the same library share a process until it ends.

    A bar on stderr names the one that is waited for.
    """
    with progress_bar(len(backends), "", unit="back end") as bar:
        for _, names in itertools.groupby(backends, key=lambda name: name.partition("-")[0]):
            group = list(names)
            with closing(ask(system, [["open", name] for name in group], OPEN_SECONDS)) as answers:
                for name in group:
                    bar.set_description(f"opening {name}, at most {OPEN_SECONDS:g} s")
                    yield _finding(name, next(answers), facts)
                    bar.update()


def _finding(name: str, answer: Answer, facts: Facts) -> Finding:
    if "runs" in answer:
        return Finding(SECTION, name, "ok", f"runs {answer['runs']}")
    if "input_error" in answer:
        return Finding(SECTION, name, "wrong", answer["input_error"], "install the package again")
    if "slow" in answer:
        found = f"{answer['fault']}: it may be compiling for this GPU"
        return Finding(SECTION, name, "untried", found, f"efftam bench --frames 1 --backend {name}")
    install = install_line(facts, name)
    if "reason" in answer:
        state = "wrong" if name == DEFAULT_BACKEND else "absent"
        remedy = answer["remedy"]
        if install and (driver := driver_line(facts)):  # without it no package helps
            remedy = f"{driver}; or choose {DEFAULT_BACKEND}"
        return Finding(SECTION, name, state, answer["reason"], remedy, install)
    remedy = "reinstall the libraries that it names, or choose another back end"
    return Finding(SECTION, name, "wrong", answer["fault"], remedy, install)
