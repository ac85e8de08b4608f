"""Runs all checks that need an NVIDIA GPU, and lists those that could not run, with the reasons."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.backends import BASELINES, MEASURABLE
from efftam_ros.runtime.backends import DEFAULT_BACKEND, ENGINES, TABLE, Backend
from efftam_ros.tools.cli import Parser
from efftam_ros.tools.doctor.checks import environment

ROOT = Path(__file__).resolve().parents[1]

ON_GPU = sorted((row for row in TABLE if row.gpu), key=lambda row: (not row.engines, not row.captured))
"""Back ends on a GPU, in order of preference: checks that need only one use the first that can run."""
BASELINES_ON_GPU = [name for name, (device, _) in BASELINES.items() if device == "cuda"]
SINGLE = "captures each of its graphs by itself"
GROWTH_MB, WAITS = 5.0, 1.0
FRAMES, QUICK_FRAMES, CPU_SHARE, SOAK_S = 300, 30, 5, 0.2
MAX_GAPS = 5
"""Largest number of causes of gaps that an item lists."""
COUNTED_FRAMES = (100, 200)
"""Frames of the two runs in which calls are counted. Their difference excludes opening and warm-up."""
INSTALL = "pip install -r scripts/requirements-gpu-check.txt"
INSTALL_CUPTI = "pip install nvidia-cuda-cupti (CUDA 12: nvidia-cuda-cupti-cu12)"
OK, FAILED, NOT_RUN = "OK", "FAILED", "NOT RUN"
EXIT_FAILED, EXIT_BAD_INPUT, EXIT_NO_GPU = 1, 2, 3
SECONDS = 7200.0
"""Time limit of one command. Each engine and each compiled network takes minutes on a Jetson."""
CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "check": False}


def efftam(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "efftam_ros", *arguments]


def benchmark(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks", *arguments]


def compare(*arguments: str) -> list[str]:
    return benchmark("compare", "--quiet", *arguments)


# --- the state of a run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """A line of the result. ``state``: `OK`, `FAILED` or `NOT_RUN`; ``why``: figures or the reason."""

    name: str
    state: str
    why: str


@dataclass
class Check:
    """One run of gpu_check.

    ``folder``: where results are written. ``frames``: frames of each measurement. ``backends``: findings of
    `efftam doctor` on back ends, by name. ``items``: the results so far.
    """

    folder: Path
    frames: int
    backends: dict[str, dict[str, str]] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)

    def note(self, name: str, state: str, why: str = "") -> None:
        """Add an item, print it, and write all items and the summary to the folder."""
        self.items.append(Item(name, state, why))
        self.write("items.json", [asdict(item) for item in self.items])
        # Written after each item, so that nothing is lost if the run is ended early.
        (self.folder / "summary.md").write_text(summary(self.folder), encoding="utf-8")
        print(f"{state:<7}  {name}{': ' + why if why else ''}", flush=True)

    def write(self, name: str, content: Any) -> None:
        """Write ``content`` as JSON to the file ``name`` in the folder."""
        (self.folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def run(self, title: str, command: Sequence[str]) -> str:
        """Run a command, write its output to a log in the folder, and return its stdout.

        Raises RuntimeError, with one line, if the command fails. A command that reports a fault as JSON with
        the field "fault" does not count as failed.
        """
        log = self.folder / f"{re.sub(r'[^a-z0-9_.-]+', '_', title.lower())}.log"
        try:
            done = subprocess.run(command, cwd=ROOT, timeout=SECONDS, **CAPTURED)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no end after {SECONDS:g} s") from None
        log.write_text(f"{' '.join(command)}\n\n{done.stdout}\n{done.stderr}", encoding="utf-8")
        if done.returncode and not _fault(done.stdout):
            lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
            raise RuntimeError(f"exit code {done.returncode}: {lines[-1]} (see {log.name})")
        return done.stdout

    def attempt(self, name: str, command: Sequence[str], missing: str = "\0") -> str | None:
        """Run a command as `run` does; after a failure, note it as the item ``name`` and return None.

        The item is `NOT_RUN` if the error contains the text ``missing``, else `FAILED`.
        """
        try:
            return self.run(name, command)
        except RuntimeError as error:
            self.note(name, NOT_RUN if missing in str(error) else FAILED, str(error))
            return None

    def report(self, name: str, command: Sequence[str], missing: str = "\0") -> dict[str, Any] | None:
        """Run a command that prints JSON, write the JSON to the folder, and return it.

        A failure is handled as in `attempt`, which also explains ``missing``.
        """
        output = self.attempt(name, command, missing)
        if output is None:
            return None
        found: dict[str, Any] = json.loads(output)
        self.write(f"{name.replace(' ', '_')}.json", found)
        return found

    def unavailable(self, row: Backend) -> str:
        """Return why a back end can't run here; "" if it can, or if that was not tried."""
        finding = self.backends.get(row.name)
        if finding is None:
            return "efftam doctor gave no answer"
        return "" if finding["state"] in ("ok", "untried") else finding["found"]

    def first_able(self) -> tuple[str, str]:
        """Return (name, "") of the first of `ON_GPU` that can run here, or ("", why none can)."""
        able = next((row.name for row in ON_GPU if not self.unavailable(row)), "")
        return able, "" if able else "; ".join(f"{row.name}: {self.unavailable(row)}" for row in ON_GPU)


def _fault(text: str) -> str:
    """Return the field "fault" of a report as JSON; "" if the text is no such report."""
    try:
        report = json.loads(text)
    except ValueError:
        return ""
    return str(report.get("fault") or "") if isinstance(report, dict) else ""


Bundles = tuple[Path | None, ...]
"""Folders of bundles to check; None: the shipped one."""


def named(what: str, bundle: Path | None) -> str:
    """Return an item's name, with the name of the bundle (None: the shipped one) at its end."""
    return f"{what} {bundle.name if bundle else 'shipped'}"


# --- steps --------------------------------------------------------------------------------------------------


def check_environment(check: Check) -> None:
    """Run `efftam doctor`, and note which back ends can run."""
    done = subprocess.run(efftam("doctor", "--json"), cwd=ROOT, **CAPTURED)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines() or ["no answer"]
        check.note("environment", FAILED, f"efftam doctor: {lines[-1]}")
        return
    check.write("doctor.json", report)
    check.backends = {f["name"]: f for f in report["findings"] if f["section"] == "back ends"}
    wrong = [f"{f['name']}: {f['found']}" for f in report["findings"] if f["state"] == "wrong"]
    state = OK if report["runs"] and not wrong else FAILED
    check.note("environment", state, "; ".join(wrong) or f"{len(report['findings'])} findings in doctor.json")


BINDINGS = """
import json
from efftam_ros.runtime.cuda.api import Cuda, dotted
from efftam_ros.runtime.cuda.api import open_device
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.stream import Event, Stream
cuda = Cuda.load()
facts = open_device(cuda)
stream, events = Stream(cuda), [Event(cuda, timing=True) for _ in range(2)]
host, device = HostBuffer(cuda, 1 << 20), DeviceBuffer(cuda, 1 << 20)
with stream.capture() as graph:
    stream.copy_in(device.pointer, host, host.nbytes)
for _ in range(3):
    stream.record(events[0])
    graph.launch(stream)
    stream.record(events[1])
    stream.synchronize()
graph.close()
gpus = cuda.call("cuDeviceGetCount")
found = {"gpus": gpus, "board": facts.board, "driver": dotted(facts.driver_version)}
found |= {"integrated": facts.integrated, "copy_ms_per_mib": events[1].milliseconds_since(events[0])}
print(json.dumps(found))
"""


def check_bindings(check: Check, _: Bundles) -> None:
    """Make every kind of call of the node to the CUDA driver, in a process without other libraries."""
    found = check.report("bindings", [sys.executable, "-c", BINDINGS])
    if found is not None:
        copy = f"{found['copy_ms_per_mib']:.3f} ms for 1 MiB"
        text = f"{found['gpus']} GPU(s); {found['board']}; CUDA {found['driver']}; {copy}"
        check.note("bindings", OK, text)


def check_tests(check: Check, name: str, where: str) -> None:
    """Run the tests marked gpu in the file or folder ``where``. The item is `NOT_RUN` if all are skipped."""
    report = check.folder / f"{name.replace(' ', '_')}.xml"
    problem = ""
    try:
        check.run(name, [sys.executable, "-m", "pytest", "-q", "-m", "gpu", f"--junitxml={report}", where])
    except RuntimeError as error:
        problem = str(error)
    if not report.is_file():
        missing = "No module named" in problem
        check.note(name, NOT_RUN if missing else FAILED, f"{problem}; {INSTALL}" if missing else problem)
        return
    cases = ElementTree.parse(report).getroot().findall(".//testcase")
    bad = [
        case.get("name", "?")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skips = [_skip_reason(skip) for case in cases if (skip := case.find("skipped")) is not None]
    why = f"{len(cases) - len(bad) - len(skips)} passed"
    if skips:
        why += f", {len(skips)} skipped ({'; '.join(sorted({reason.partition(';')[0] for reason in skips}))})"
    if bad:
        check.note(name, FAILED, f"{', '.join(bad)}; {why}")
    elif len(cases) == len(skips):
        check.note(name, NOT_RUN, why if cases else "no test there is marked gpu")
    else:
        check.note(name, FAILED if problem else OK, problem or why)


def _skip_reason(skip: ElementTree.Element) -> str:
    """Return why a test was skipped, or why its whole module was skipped when it was collected."""
    whole = re.search(r"Skipped: (.+?)['\")]*$", skip.text or "")
    return whole[1] if whole else skip.get("message", "")


def probe(what: str, bundle: Path | None, *options: str) -> list[str]:
    """Return the command that runs one function of gpu_check_probes.py in a process of its own."""
    command = [sys.executable, str(ROOT / "scripts" / "gpu_check_probes.py"), what, *options]
    return [*command, *_option(bundle)]


def _option(bundle: Path | None) -> list[str]:
    return ["--bundle", str(bundle)] if bundle else []


def check_parsing(check: Check, bundles: Bundles) -> None:
    """Check that TensorRT's parser accepts every graph. This takes seconds; building engines takes longer."""
    for bundle in bundles:
        name = named("parse", bundle)
        report = check.report(name, probe("parse", bundle), missing="not installed")
        if report is not None:
            refused = [f"{graph}: {why}" for graph, why in report["refused"].items() if why]
            check.note(
                name, FAILED if refused else OK, "; ".join(refused) or f"{len(report['refused'])} graphs"
            )


def check_layers(check: Check, bundles: Bundles) -> None:
    """Store a description of the layers that TensorRT made of each graph; the item shows their numbers."""
    for bundle in bundles:
        name = named("layers", bundle)
        report = check.report(name, probe("layers", bundle), missing="not installed")
        if report is not None:
            found = [f"{graph} {len(layers)}" for graph, layers in report["layers"].items()]
            check.note(name, OK, ", ".join(found))


def check_frames(check: Check, bundles: Bundles) -> None:
    """Measure every frame with the default policy, at several rates, with waits that sleep and that spin."""
    for row, bundle, reason in _where(check, bundles):
        for waits in ("sleeping", "spinning"):
            name = named(f"frames {waits} {row.name}", bundle)
            if reason:
                check.note(name, NOT_RUN, reason)
                continue
            options = ["--backend", row.name, "--frames", str(check.frames)]
            report = check.report(
                name, probe("frames", bundle, *options, *["--spinning"] * (waits == "spinning"))
            )
            if report is not None:
                check.note(
                    name,
                    OK,
                    "; ".join(
                        f"{one['rate_hz'] or 'unpaced'}: {one['median_ms']:.2f} ms, p99 {one['p99_ms']:.2f},"
                        f" a second thread stood still {one['longest_pause_ms']:.1f} ms"
                        for one in report["rates"]
                    ),
                )


def _where(check: Check, bundles: Bundles) -> Iterator[tuple[Backend, Path | None, str]]:
    """Yield each back end whose work is captured as CUDA graphs, with each bundle, and why it can't run.

    The reason is "" if it can.
    """
    for row in ON_GPU:
        if row.captured:
            for bundle in bundles:
                yield row, bundle, check.unavailable(row)


def check_engines(check: Check, bundles: Bundles) -> None:
    """Build the engines and compare their results; the steps after this one use them."""
    for precision in ENGINES.precisions:
        for bundle in bundles:
            name = named(f"engines {precision}", bundle)
            command = efftam("build", "--precision", precision, "--json", *([str(bundle)] if bundle else []))
            report = check.report(name, command, missing="not installed")
            if report is not None:
                forms = ", ".join(f"{module} {one['form']}" for module, one in report["engines"].items())
                check.note(name, OK, forms)
                if precision == ENGINES.auto:
                    check.backends[ENGINES.name] = {"state": "ok", "found": ""}


def check_verify(check: Check, bundles: Bundles) -> None:
    """Compare the results of every back end with those of the CPU, in each precision."""
    for row in ON_GPU:
        for precision in row.variants:
            variant = row.name if precision == "auto" else f"{row.name} {precision}"
            for bundle in bundles:
                name = named(f"verify {variant}", bundle)
                if reason := check.unavailable(row):
                    check.note(name, NOT_RUN, reason)
                    continue
                command = efftam("verify", "--backend", row.name, "--precision", precision, "--json")
                report = check.report(name, [*command, *([str(bundle)] if bundle else [])], "efftam build")
                if report is None:
                    continue
                worst = max(report["worst"], key=lambda one: one["value"] / one["limit"])
                found = f"at most {worst['value']:.1e} ({worst['output']}), limit {worst['limit']}"
                fault = report.get("fault")
                check.note(name, FAILED if fault else OK, f"{fault}; {found}" if fault else found)
                if row.captured:
                    _check_captures(check, named(f"captures {variant}", bundle), report["launch"])


def _check_captures(check: Check, name: str, launch: dict[str, str]) -> None:
    # Parts with the text SINGLE are left out: onnxruntime captures each graph by itself. TensorRT's graphs
    # are captured as parts of two larger CUDA graphs.
    parts = {part: how for part, how in launch.items() if SINGLE not in how}
    plain = [f"{part}: {how}" for part, how in parts.items() if not how.startswith("cuda graph")]
    check.note(name, FAILED if plain else OK, "; ".join(plain or sorted(set(parts.values()))))


def check_benches(check: Check, bundles: Bundles) -> None:
    """Measure the times of all GPU back ends in one run; if it fails, each in a run of its own.

    The CPU is measured in a run of its own, because the clocks of an idle GPU drop.
    """
    for bundle in bundles:
        name = named("bench", bundle)
        able = []
        for row in ON_GPU:
            if reason := check.unavailable(row):
                check.note(f"{name}, {row.name}", NOT_RUN, reason)
            else:
                able += [one for one in MEASURABLE if one.partition(":")[0] == row.name]
        if able:
            able += BASELINES_ON_GPU
            if not _bench(check, name, bundle, able, check.frames) and len(able) > 1:
                for one in able:
                    _bench(check, f"{name} {one}", bundle, [one], check.frames)
        _bench(check, f"{name} cpu", bundle, [DEFAULT_BACKEND], max(1, check.frames // CPU_SHARE))


def check_timeline(check: Check, bundles: Bundles) -> None:
    """Measure how the time of a frame is spent, and check a simulation of the GPU that uses these times."""
    for row, bundle, reason in _where(check, bundles):
        name, simulation = (named(f"{what} {row.name}", bundle) for what in ("timeline", "simulation"))
        if reason:
            check.note(name, NOT_RUN, reason)
            check.note(simulation, NOT_RUN, reason)
            continue
        stem = check.folder / name.replace(" ", "_")
        command = efftam("bench", "--timeline", "--backend", row.name, "--frames", str(check.frames))
        command += ["--json", f"{stem}.json", "--trace", f"{stem}.trace.json", *_option(bundle)]
        if check.attempt(name, command) is None:
            continue
        found = json.loads(Path(f"{stem}.json").read_text(encoding="utf-8"))["timeline"]
        gaps = sorted(found["gaps_ms"].items(), key=lambda item: -item[1])[:MAX_GAPS]
        listed = ", ".join(f"{cause} {ms:.2f}" for cause, ms in gaps)
        text = f"{found['frame_ms']:.2f} ms, not recorded {found['unrecorded_frame_ms']:.2f}, network"
        check.note(name, OK, f"{text} {found['network_ms']:.2f}, {listed}; {found['clock']}")
        command = benchmark("idle_gpu", "--costs", f"{stem}.json", "--frames", str(check.frames))
        predicted = check.report(simulation, [*command, *_option(bundle)])
        if predicted is not None:
            ratio = (
                f"simulated over measured frame {predicted['simulated over measured']:.3f}, goal within 10 %"
            )
            check.note(simulation, OK if predicted["within"] else FAILED, ratio)


def check_node(check: Check, bundles: Bundles) -> None:
    """Lead the tracker's node through its lifecycle, with tracked frames and a SIGTERM at the end."""
    for row, bundle, reason in _where(check, bundles):
        name = named(f"node {row.name}", bundle)
        if reason:
            check.note(name, NOT_RUN, reason)
            continue
        options = ["--backend", row.name, "--frames", str(check.frames)]
        report = check.report(name, probe("node", bundle, *options), missing="No module named")
        if report is not None:
            steps = [f"{one['step']} {one['resident_mb']:.0f} MB" for one in report["steps"]]
            check.note(name, OK, f"{', '.join(steps)}; SIGTERM: exit code 0")


def check_copies(check: Check, bundles: Bundles) -> None:
    """Compare images that are copied to the GPU's memory with images that the GPU reads from host memory."""
    backend, reason = check.first_able()
    for bundle in bundles:
        for what, options in (("copied", ()), ("zero copy", ("--zero-copy",))):
            name = "bench " + what + (f" {bundle.name}" if bundle else "")
            if backend:
                _bench(check, name, bundle, [backend], check.frames, *options)
            else:
                check.note(name, NOT_RUN, reason)


def _bench(
    check: Check, name: str, bundle: Path | None, backends: Sequence[str], frames: int, *options: str
) -> bool:
    stem = check.folder / re.sub(r"[^a-z0-9_.-]+", "_", name.lower())
    command = compare(
        "--frames", str(frames), "--skip-unavailable", "--backend", ",".join(backends), *options
    )
    command += ["--json", f"{stem}.json"]
    if check.attempt(name, [*command, *_option(bundle)]) is None:
        return False
    report = json.loads(Path(f"{stem}.json").read_text(encoding="utf-8"))
    for one in report["left_out"]:
        check.note(f"{name}, {one['backend']}", NOT_RUN, one["reason"])
    times = ", ".join(f"{timing['backend']} {timing['whole_ms']:.2f} ms" for timing in report["frames"])
    check.note(name, OK, times)
    return True


def check_soak(check: Check, bundles: Bundles) -> None:
    """Check that memory does not grow by `GROWTH_MB` or more over many frames."""
    for row, bundle, reason in _where(check, bundles):
        name = named(f"soak {row.name}", bundle)
        if reason:
            check.note(name, NOT_RUN, reason)
            continue
        path = check.folder / f"{name.replace(' ', '_')}.json"
        seconds = str(check.frames * SOAK_S)
        command = efftam("bench", "--soak", seconds, "--backend", row.name, "--json", str(path))
        if check.attempt(name, [*command, *_option(bundle)]) is None:
            continue
        soak = json.loads(path.read_text(encoding="utf-8"))["soak"]
        for what in ("resident", "device"):
            start, end = soak[f"{what}_mb"]
            if start is None or end is None:
                check.note(f"{name}, {what} memory", NOT_RUN, "the memory in use can't be asked")
            else:
                grew = f"{end - start:+.1f} MB in {soak['frames']} frames, goal under {GROWTH_MB:g}"
                check.note(f"{name}, {what} memory", OK if end - start < GROWTH_MB else FAILED, grew)


def check_waits(check: Check, bundles: Bundles) -> None:
    """Count per frame the calls of the CUDA driver that wait, and those that allocate memory."""
    counter = "" if find_cupti() else f"libcupti is not installed; {INSTALL_CUPTI}"
    for row, bundle, reason in _where(check, bundles):
        name = named(f"waits {row.name}", bundle)
        if reason or counter:
            check.note(name, NOT_RUN, reason or counter)
            continue
        # Each back end has a folder of its own, because the names of the logs are the same for all.
        folder = check.folder / name.replace(" ", "_")
        folder.mkdir()
        options = ["--backend", row.name, *_option(bundle)]
        try:
            found = calls_per_frame(options, folder, replace(check, folder=folder).run)
        except (RuntimeError, ValueError) as error:
            check.note(name, FAILED, str(error))
            continue
        check.write(
            f"{folder.name}.json", found | {"of": f"{row.name}, {bundle.name if bundle else 'shipped'}"}
        )
        waits, allocations = found["waits_per_frame"], found["allocations_per_frame"]
        state = OK if waits <= WAITS and allocations == 0 else FAILED
        check.note(name, state, f"{waits:g} waits (goal 1), {allocations:g} allocations (goal 0)")


STEPS: dict[str, Callable[[Check, Bundles], None]] = {
    "bindings": check_bindings,
    "parse": check_parsing,
    "kernels": lambda check, _: check_tests(check, "kernels", "test/runtime/cuda"),
    "engines": check_engines,
    "layers": check_layers,
    "verify": check_verify,
    "agreement": lambda check, _: check_tests(check, "back ends agree", "test/runtime/test_gpu_backends.py"),
    "frames": check_frames,
    "timeline": check_timeline,
    "node": check_node,
    "copies": check_copies,
    "bench": check_benches,
    "soak": check_soak,
    "waits": check_waits,
}


# --- calls of the CUDA driver -------------------------------------------------------------------------------

WAITING = (
    r"cuda(Event|Stream|Device)Synchronize|cu(Event|Stream|Ctx)Synchronize|cudaMemcpy|cuMemcpy(DtoH|HtoD)"
)
ALLOCATING = r"cudaMalloc\w*|cudaFree\w*|cudaHostAlloc|cuMemHostAlloc|cuMemAlloc\w*|cuMemFree\w*"
VERSION = r"(_v\d+|_ptsz)*"
"""Suffixes that some names of functions have, as a regular expression."""
COUNT = "count-calls"
"""First argument of the process that runs a benchmark and counts its calls through CUPTI."""


def calls_per_frame(
    options: Sequence[str], folder: Path, run: Callable[[str, Sequence[str]], str]
) -> dict[str, Any]:
    """Return the numbers of CUDA calls per frame, computed from a shorter and a longer run of `compare`.

    ``options``: options of `compare`. ``folder``: where the counts are written. ``run(title, command)`` runs
    a command, returns its stdout and raises RuntimeError if it fails.
    """
    few, many = COUNTED_FRAMES
    fewer, more = (_calls(options, folder, run, frames) for frames in COUNTED_FRAMES)
    grown = {name: round((n - fewer.get(name, 0)) / (many - few), 3) for name, n in more.items()}

    def count_of(names: str) -> float:
        fitting = (n for name, n in grown.items() if re.fullmatch(f"(?:{names}){VERSION}", name))
        return round(sum(fitting), 3)

    return {
        "counted_by": "CUPTI",
        "waits_per_frame": count_of(WAITING),
        "allocations_per_frame": count_of(ALLOCATING),
        "calls_per_frame": {name: n for name, n in grown.items() if n},
    }


def _calls(
    bench: Sequence[str], folder: Path, run: Callable[[str, Sequence[str]], str], frames: int
) -> dict[str, int]:
    """Return the number of calls by name in a run of `compare` with so many frames."""
    # `compare` returns a command; its first three words are the interpreter, -m and benchmarks.
    command, out = compare(*bench, "--frames", str(frames))[3:], folder / f"calls_{frames}.json"
    run(f"calls of {frames} frames", [sys.executable, str(Path(__file__)), COUNT, str(out), *command])
    counted: dict[str, int] = json.loads(out.read_text(encoding="utf-8"))
    return counted


TOOLKITS = "/usr/local"
# Value of CUpti_CallbackDomain for the driver. Calls of the CUDA runtime are counted by the driver calls that
# they make.
DRIVER_API = 1
# CUpti_CallbackData begins with the call site (0: the call begins), followed by the function's name.
SITE_OFFSET, NAME_OFFSET, BEGINS = 0, 8, 0
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)


def find_cupti() -> Path | None:
    """Return the newest libcupti of the Python packages and CUDA toolkits; None if there is none."""
    found = [path for folder in _folders() for path in folder.glob("**/libcupti.so.*") if path.is_file()]
    return max(found, key=lambda path: path.name, default=None)


def _folders() -> Iterator[Path]:
    yield from (Path(entry) / "nvidia" for entry in sys.path if (Path(entry) / "nvidia").is_dir())
    yield from Path(TOOLKITS).glob("cuda*/extras/CUPTI/lib64")


class CallCounter:
    """Counts the calls of the CUDA driver that this process makes, directly or through the CUDA runtime."""

    def __init__(self, library: Path) -> None:
        """Start to count. Raises RuntimeError if CUPTI refuses, for example beside another profiler."""
        self._cupti: Any = ctypes.CDLL(str(library))
        self._names: dict[int, str] = {}
        self._counts: Counter[int] = Counter()
        self._callback = CALLBACK(self._count)  # kept here, because CUPTI stores only its address
        self._subscriber = ctypes.c_void_p()
        self._check("cuptiSubscribe", ctypes.byref(self._subscriber), self._callback, None)
        self._check("cuptiEnableDomain", 1, self._subscriber, DRIVER_API)

    @property
    def counts(self) -> dict[str, int]:
        """Number of calls by the name of the function."""
        return {self._names[function]: count for function, count in self._counts.items()}

    def close(self) -> None:
        """Stop to count.

        This is necessary because CUDA's libraries make calls while the process ends, when CUPTI must not call
        Python any more.
        """
        self._check("cuptiUnsubscribe", self._subscriber)

    def _check(self, function: str, *arguments: Any) -> None:
        status = getattr(self._cupti, function)(*arguments)
        if status:
            raise RuntimeError(f"{function} of {self._cupti._name} failed with status {status}")

    def _count(self, _: Any, domain: int, function: int, data: int) -> None:
        if ctypes.c_int.from_address(data + SITE_OFFSET).value != BEGINS:
            return
        if function not in self._names:
            name = ctypes.c_char_p.from_address(data + NAME_OFFSET).value or b"unknown"
            self._names[function] = name.decode()
        self._counts[function] += 1


def count_calls(out: str, *command: str) -> int:
    """Run a benchmark in this process and write the numbers of its CUDA calls to the file ``out``.

    ``command``: arguments of `python -m benchmarks`. Returns the exit code.
    """
    library = find_cupti()
    if library is None:
        print(f"gpu_check: libcupti is not installed; {INSTALL_CUPTI}", file=sys.stderr)
        return EXIT_BAD_INPUT
    counter = CallCounter(library)
    from benchmarks.__main__ import main as benchmark

    with contextlib.closing(counter):
        code = benchmark(list(command))
    Path(out).write_text(json.dumps(counter.counts, indent=1) + "\n", encoding="utf-8")
    return code


# --- summary ------------------------------------------------------------------------------------------------

MODULES = ("preprocess", "image_encoder", "memory_attention", "mask_decoder", "memory_encoder")


def summary(folder: Path) -> str:
    """Return the summary in Markdown: the machine, the items, and a table for each stored measurement."""
    about = _load(folder / "about.json") or {}
    items = _load(folder / "items.json") or []
    benches = {path: _load(path) for path in sorted(folder.glob("bench_*.json"))}
    lines = [f"# GPU check: {about.get('gpu', 'unknown GPU')}, {about.get('date', 'unknown date')}", ""]
    lines += [_machine(about.get("environment") or {}), ""]
    lines += ["| item | result | why |", "|---|---|---|"]
    lines += [f"| {item['name']} | {item['state']} | {_cell(item['why'])} |" for item in items]
    for path, report in benches.items():
        if report and report.get("frames"):
            lines += ["", f"## {path.stem.removeprefix('bench_')}", "", *_bench_rows(report)]
    rows = [row for path in sorted(folder.glob("soak_*.json")) for row in _soak_rows(_load(path))]
    rows += [row for path in sorted(folder.glob("waits_*.json")) for row in _waits_rows(_load(path))]
    if rows:
        head = ["| what | goal | measured | command |", "|---|---|---|---|"]
        lines += ["", "## Soak, calls", "", *head, *rows]
    return "\n".join(lines) + "\n"


def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _machine(facts: dict[str, Any]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {', '.join(value) if isinstance(value, list) else value}"
        for name, value in facts.items()
        if value
    )


def _bench_rows(report: dict[str, Any]) -> list[str]:
    timings = report["frames"]
    first, size = timings[0], "x".join(map(str, report["image"]))
    memory = f"{first['maps']} maps and {first['pointers']} pointers"
    baselines = sorted({name for timing in timings for name in timing["times_faster_than"]})
    lines = [
        f"ms, median of {first['frames']} frames of {size} with {memory}, taken in turns:",
        "",
        f"| | whole | p99 | {' | '.join(name.replace('_', ' ') for name in MODULES)} | glue ratio |"
        + "".join(f" x {name} |" for name in baselines),
        "|---|---|---|" + "---|" * (len(MODULES) + 1 + len(baselines)),
    ]
    for timing in timings:
        cells = [timing["whole_ms"], timing["whole_p99_ms"]]
        cells += [timing["stages_ms"].get(name) for name in MODULES]
        cells += [timing["glue_ratio"]]
        cells += [timing["times_faster_than"].get(name) for name in baselines]
        lines.append(f"| {timing['name']} | {' | '.join(_number(cell) for cell in cells)} |")
    lines += ["", "| | start-up, s | resident MB | device MB | launched |", "|---|---|---|---|---|"]
    for timing in timings:
        launched = "; ".join(f"{module}: {how}" for module, how in timing["launch"].items()) or "-"
        figures = " | ".join(_number(timing[name]) for name in ("start_up_s", "resident_mb", "device_mb"))
        lines.append(f"| {timing['name']} | {figures} | {_cell(launched)} |")
    return lines


def _soak_rows(report: dict[str, Any]) -> Iterator[str]:
    soak = report["soak"]
    command = f"`efftam bench --soak SECONDS --backend {report['backend']}`"
    what = f"{soak['frames']:,} frames ({report['bundle']} {report['backend']}): resident memory"
    what += " after the first 100"
    start, end = soak["resident_mb"]
    yield f"| {what} | under 5 MB | {end - start:+.1f} MB | {command} |"
    start, end = soak["device_mb"]
    if start is not None and end is not None:
        yield f"| the same: device memory in use | under 5 MB | {end - start:+.1f} MB | the same |"
    times = "{1:.2f} against {0:.2f} ms".format(*soak["whole_ms"])
    yield f"| the same: frame time, last quarter against the first | no drift | {times} | the same |"


def _waits_rows(report: dict[str, Any]) -> Iterator[str]:
    command = f"`scripts/gpu_check` ({report['counted_by']})"
    yield f"| host waits per frame ({report['of']}) | 1 | {report['waits_per_frame']:g} | {command} |"
    yield f"| allocations per frame | 0 | {report['allocations_per_frame']:g} | the same |"


def _number(value: float | None) -> str:
    """Return a value with three significant digits; a dash for None and NaN."""
    if value is None or value != value:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(text: str) -> str:
    return text.replace("|", "/")


# --- the command --------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="gpu_check", description=__doc__)
    parser.add_argument("bundle", nargs="?", type=Path, help="check this bundle too, such as a ti_512x512")
    parser.add_argument(
        "--quick",
        dest="frames",
        action="store_const",
        const=QUICK_FRAMES,
        default=FRAMES,
        help=f"the same as --frames {QUICK_FRAMES}",
    )
    parser.add_argument(
        "--frames",
        type=int,
        default=FRAMES,
        metavar="N",
        help=f"frames of each measurement; memory is watched for {SOAK_S} s per frame (default {FRAMES})",
    )
    parser.add_argument(
        "--only",
        metavar="A,B",
        default=",".join(STEPS),
        help=f"run only these of {', '.join(STEPS)} (default: all)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="where the new folder is made"
    )
    parser.add_argument(
        "--summary", type=Path, metavar="FOLDER", help="only rewrite this folder's summary.md"
    )
    return parser.parse_args(arguments)


def refusal(args: argparse.Namespace) -> str:
    """Return why these options are invalid, in one line; "" if they are valid."""
    for path, name in ((args.summary, "items.json"), (args.bundle, "bundle.json")):
        if path is not None and not (path / name).is_file():
            return f"{path / name} does not exist; give a folder that has it"
    if unknown := [step for step in args.only.split(",") if step and step not in STEPS]:
        return f"--only {unknown[0]} is not known; choose from {', '.join(STEPS)}"
    return "" if args.frames >= 1 else f"--frames is {args.frames}; it must be at least 1"


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if reason := refusal(args):
        print(f"gpu_check: {reason}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if args.summary is not None:
        return finish(args.summary)
    facts = environment()
    if facts["driver_problem"]:
        reason = f"{facts['driver_problem']}; {facts['driver_remedy']}"
        print(f"gpu_check: no NVIDIA GPU that answers ({reason}); nothing was run", file=sys.stderr)
        return EXIT_NO_GPU
    now = datetime.now()
    gpu = (facts["gpus"] or [facts["platform"]])[0].partition(",")[0]
    plain = "-".join(re.findall("[A-Za-z0-9]+", gpu))
    folder = args.out.resolve() / f"gpu_check_{plain}_{now:%Y-%m-%d_%H%M%S}"
    folder.mkdir(parents=True)
    check = Check(folder, args.frames)
    check.write("about.json", {"gpu": gpu, "date": f"{now:%Y-%m-%d}", "environment": facts})
    check.write("items.json", [])
    bundles = (None,) if args.bundle is None else (None, args.bundle.resolve())
    try:
        check_environment(check)
        for step in filter(None, args.only.split(",")):
            try:
                STEPS[step](check, bundles)
            except Exception as error:  # the other steps must still run
                check.note(step, FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}")
    except KeyboardInterrupt:
        check.note("the rest", FAILED, "interrupted")
    return finish(check.folder)


def finish(folder: Path) -> int:
    """Write the summary; returns the exit code."""
    path = folder / "summary.md"
    path.write_text(summary(folder), encoding="utf-8")
    items = json.loads((folder / "items.json").read_text(encoding="utf-8"))
    counts = {state: sum(item["state"] == state for item in items) for state in (OK, FAILED, NOT_RUN)}
    print(f"{', '.join(f'{count} {state}' for state, count in counts.items())}: paste {path} into an issue")
    return EXIT_FAILED if counts[FAILED] else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(count_calls(*sys.argv[2:]) if sys.argv[1:2] == [COUNT] else main())
