"""Runs every check that needs an NVIDIA GPU; checks that could not run are listed with the reason."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import gpu_check_calls
import gpu_check_waits
from gpu_check_summary import summary

from benchmarks.backends import BASELINES
from benchmarks.machine import environment
from efftam_ros.runtime.pipeline import GPU_BACKENDS
from efftam_ros.tools.cli import Parser
from efftam_ros.tools.doctor.gpu_facts import Facts, gather
from efftam_ros.tools.doctor.system import System

ROOT = Path(__file__).resolve().parents[1]
CPU = "onnxruntime-cpu"
MEASURED = (*GPU_BACKENDS, *(name for name, (device, _) in BASELINES.items() if device == "cuda"))
PREFERRED = ("tensorrt", "onnxruntime-cuda", "tensorrt-fp32", "onnxruntime-tensorrt", "onnxruntime-cuda-fp32")
"""The first of these that can run is measured where one is enough."""
CAPTURED_BACKENDS = (
    "tensorrt",
    "tensorrt-fp32",
    "tensorrt-int8",
    "onnxruntime-cuda",
    "onnxruntime-cuda-fp32",
)
PRECISIONS = {"tensorrt": "fp16", "tensorrt-fp32": "fp32", "tensorrt-int8": "int8"}
SINGLE = "captures each of its graphs by itself"
GROWTH_MB, WAITS = 5.0, 1.0
FRAMES, QUICK_FRAMES, CPU_SHARE, SOAK_S = 300, 30, 5, 0.2
INSTALL = "pip install -r scripts/requirements-gpu-check.txt"
OK, FAILED, NOT_RUN = "OK", "FAILED", "NOT RUN"
EXIT_FAILED, EXIT_BAD_INPUT, EXIT_NO_GPU = 1, 2, 3
# Engines and compiled networks take minutes each on a Jetson.
SECONDS = 7200.0
CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "check": False}


@dataclass(frozen=True)
class Item:
    name: str
    state: str
    why: str


@dataclass
class Check:
    """One run: its folder and the results so far."""

    folder: Path
    frames: int
    backends: dict[str, dict[str, str]] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)

    def note(self, name: str, state: str, why: str = "") -> None:
        self.items.append(Item(name, state, why))
        self.write("items.json", [asdict(item) for item in self.items])
        print(f"{state:<7}  {name}{': ' + why if why else ''}", flush=True)

    def write(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def run(self, title: str, command: Sequence[str]) -> str:
        """Run a command, log its output, return its stdout. Raises RuntimeError, one line, when it fails."""
        log = self.folder / f"{re.sub(r'[^a-z0-9_.-]+', '_', title.lower())}.log"
        try:
            done = subprocess.run(command, cwd=ROOT, timeout=SECONDS, **CAPTURED)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no end after {SECONDS:g} s") from None
        log.write_text(f"{' '.join(command)}\n\n{done.stdout}\n{done.stderr}", encoding="utf-8")
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
            raise RuntimeError(f"exit code {done.returncode}: {lines[-1]} (see {log.name})")
        return done.stdout

    def unavailable(self, backend: str) -> str:
        """Why a back end can't run here, "" when it can (or may)."""
        finding = self.backends.get(backend)
        if finding is None:
            return f"this version has no back end {backend}"
        return "" if finding["state"] in ("ok", "untried") else finding["found"]

    def first_able(self) -> tuple[str, str]:
        """The first of `PREFERRED` that can run here, or "" and the reason why each can't."""
        for backend in PREFERRED:
            if not self.unavailable(backend):
                return backend, ""
        return "", "; ".join(f"{backend}: {self.unavailable(backend)}" for backend in PREFERRED)


def efftam(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "efftam_ros", *arguments]


def benchmark(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks", *arguments]


def check_environment(check: Check) -> None:
    done = subprocess.run(efftam("doctor", "--json"), cwd=ROOT, capture_output=True, text=True, check=False)
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
from efftam_ros.runtime.cuda.device import open_device
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


def check_bindings(check: Check) -> None:
    """Every kind of call that the node makes to the driver, with nothing else loaded."""
    try:
        found = json.loads(check.run("bindings", [sys.executable, "-c", BINDINGS]))
    except RuntimeError as error:
        check.note("bindings", FAILED, str(error))
        return
    check.write("bindings.json", found)
    copy = f"{found['copy_ms_per_mib']:.3f} ms for 1 MiB"
    check.note("bindings", OK, f"{found['gpus']} GPU(s); {found['board']}; CUDA {found['driver']}; {copy}")


def check_tests(check: Check, name: str, *where: str) -> None:
    """Run the tests marked gpu in ``where``; skipped tests count as not run."""
    report = check.folder / f"{name.replace(' ', '_')}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", f"--junitxml={report}", *where]
    problem = ""
    try:
        check.run(name, command)
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
        check.note(name, OK if not problem else FAILED, problem or why)


def _skip_reason(skip: ElementTree.Element) -> str:
    """The reason of a skipped test, or of a module that skipped itself when it was collected."""
    whole = re.search(r"Skipped: (.+?)['\")]*$", skip.text or "")
    return whole[1] if whole else skip.get("message", "")


def check_engines(check: Check, bundle: Path | None) -> None:
    """Build and compare the engines; `bench` can use them afterwards."""
    for backend, precision in PRECISIONS.items():
        for given in (None, bundle) if bundle is not None else (None,):
            name = f"engines {precision} {given.name if given else 'shipped'}"
            command = efftam("build", "--precision", precision, "--json")
            try:
                said = check.run(name, [*command, *([] if given is None else [str(given.resolve())])])
            except RuntimeError as error:
                missing = "not installed" in str(error)
                check.note(name, NOT_RUN if missing else FAILED, str(error))
                continue
            report = json.loads(said)
            check.write(f"{name.replace(' ', '_')}.json", report)
            forms = ", ".join(f"{module} {one['form']}" for module, one in report["engines"].items())
            check.note(name, OK, forms)
            check.backends[backend] = {"state": "ok", "found": ""}


def check_verify(check: Check, bundle: Path | None) -> None:
    """Every back end with graphs of its own against the CPU, over a chained clip."""
    for backend in GPU_BACKENDS:
        for given in (None, bundle) if bundle is not None else (None,):
            name = f"verify {backend} {given.name if given else 'shipped'}"
            if reason := check.unavailable(backend):
                check.note(name, NOT_RUN, reason)
                continue
            command = efftam("verify", "--backend", backend, "--json")
            try:
                report = json.loads(
                    check.run(name, [*command, *([] if given is None else [str(given.resolve())])])
                )
            except RuntimeError as error:
                check.note(name, FAILED, str(error))
                continue
            check.write(f"{name.replace(' ', '_')}.json", report)
            worst = max(one["relative"] for one in report["deviations"])
            check.note(name, OK, f"worst error {worst:.1e}, overlap {report['clip']['mean']:.4f}")
            if backend in CAPTURED_BACKENDS:
                # onnxruntime captures its graphs one by one, TensorRT's become part of two larger ones.
                parts = {part: how for part, how in report["launch"].items() if SINGLE not in how}
                plain = [f"{part}: {how}" for part, how in parts.items() if not how.startswith("cuda graph")]
                name = f"captures {name.removeprefix('verify ')}"
                check.note(name, FAILED if plain else OK, "; ".join(plain or sorted(set(parts.values()))))


def check_bench(check: Check, bundle: Path | None) -> None:
    """Measure the GPU back ends in one run; when that fails, each in a separate run. The CPU has a separate
    run, because the clocks of an idle GPU drop."""
    name = f"bench {bundle.name if bundle else 'shipped'}"
    able = [backend for backend in MEASURED if not check.unavailable(backend)]
    for backend in MEASURED:
        if backend not in able:
            check.note(f"{name}, {backend}", NOT_RUN, check.unavailable(backend))
    if able and not _bench(check, name, bundle, able, check.frames) and len(able) > 1:
        for backend in able:
            _bench(check, f"{name} {backend}", bundle, [backend], check.frames)
    _bench(check, f"{name} cpu", bundle, [CPU], max(1, check.frames // CPU_SHARE))


def check_copies(check: Check) -> None:
    """Images copied to the GPU's memory against images that it reads from the host's."""
    backend, reason = check.first_able()
    if not backend:
        check.note("zero copy", NOT_RUN, reason)
        return
    _bench(check, "bench copied", None, [backend], check.frames)
    _bench(check, "bench zero copy", None, [backend], check.frames, "--zero-copy")


def _bench(
    check: Check, name: str, bundle: Path | None, backends: Sequence[str], frames: int, *options: str
) -> bool:
    stem = check.folder / name.replace(" ", "_")
    command = benchmark("compare", "--frames", str(frames), "--quiet", "--skip-unavailable", *options)
    command += ["--backend", ",".join(backends), "--json", f"{stem}.json", "--plot", f"{stem}.png"]
    try:
        check.run(name, [*command, *([] if bundle is None else ["--bundle", str(bundle)])])
    except RuntimeError as error:
        check.note(name, FAILED, str(error))
        return False
    report = json.loads(Path(f"{stem}.json").read_text(encoding="utf-8"))
    for one in report["left_out"]:
        check.note(f"{name}, {one['backend']}", NOT_RUN, one["reason"])
    times = ", ".join(f"{timing['backend']} {timing['whole_ms']:.2f} ms" for timing in report["frames"])
    check.note(name, OK, times)
    return True


def check_soak(check: Check) -> None:
    name = "soak"
    backend, reason = check.first_able()
    if not backend:
        check.note(name, NOT_RUN, reason)
        return
    seconds = str(check.frames * SOAK_S)
    path = check.folder / "soak.json"
    command = efftam("bench", "--soak", seconds, "--backend", backend, "--json", str(path))
    try:
        check.run(name, command)
    except RuntimeError as error:
        check.note(name, FAILED, str(error))
        return
    soak = json.loads(path.read_text(encoding="utf-8"))["soak"]
    for what in ("resident", "device"):
        start, end = soak[f"{what}_mb"]
        if start is None or end is None:
            check.note(f"{name}, {what} memory", NOT_RUN, "the memory in use can't be asked")
        else:
            grew = f"{end - start:+.1f} MB in {soak['frames']} frames, goal under {GROWTH_MB:g}"
            check.note(f"{name}, {what} memory", OK if end - start < GROWTH_MB else FAILED, grew)


def check_waits(check: Check) -> None:
    name = "waits per frame"
    nsys = shutil.which("nsys")
    backend, reason = check.first_able()
    if nsys is None and gpu_check_calls.find_cupti() is None:
        reason = f"neither nsys (Nsight Systems) nor libcupti is installed; {gpu_check_calls.INSTALL}"
    if reason:
        check.note(name, NOT_RUN, reason)
        return
    try:
        found = gpu_check_waits.measure(
            nsys, ["compare", "--quiet", "--backend", backend], check.folder, check.run
        )
    except (RuntimeError, ValueError) as error:
        check.note(name, FAILED, str(error))
        return
    check.write("waits.json", found)
    waits, allocations = found["waits_per_frame"], found["allocations_per_frame"]
    good = waits <= WAITS and allocations == 0
    check.note(
        name, OK if good else FAILED, f"{waits:g} waits (goal 1), {allocations:g} allocations (goal 0)"
    )


def check_benches(check: Check, bundle: Path | None) -> None:
    check_bench(check, None)
    if bundle is not None:
        check_bench(check, bundle.resolve())


STEPS: dict[str, Callable[[Check, Path | None], None]] = {
    "bindings": lambda check, _: check_bindings(check),
    "kernels": lambda check, _: check_tests(check, "kernels", "test/runtime/cuda"),
    "engines": check_engines,
    "verify": check_verify,
    "agreement": lambda check, _: check_tests(check, "back ends agree", "test/runtime/test_gpu_backends.py"),
    "copies": lambda check, _: check_copies(check),
    "bench": check_benches,
    "soak": lambda check, _: check_soak(check),
    "waits": lambda check, _: check_waits(check),
}


def folder_for(facts: Facts, parent: Path, now: datetime) -> Path:
    """A new folder named after the GPU and the time."""
    gpu = re.sub(r"[^A-Za-z0-9]+", "-", gpu_name(facts)).strip("-")
    folder = parent / f"gpu_check_{gpu}_{now:%Y-%m-%d_%H%M%S}"
    folder.mkdir(parents=True)
    return folder


def gpu_name(facts: Facts) -> str:
    return next(iter((*facts.smi, *facts.gpus, facts.platform.text))).partition(",")[0]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="gpu_check", description=__doc__)
    parser.add_argument("bundle", nargs="?", type=Path, help="bench this bundle too, such as a ti_512x512")
    parser.add_argument(
        "--quick",
        dest="frames",
        action="store_const",
        const=QUICK_FRAMES,
        default=FRAMES,
        help=f"--frames {QUICK_FRAMES}",
    )
    parser.add_argument(
        "--frames",
        type=int,
        default=FRAMES,
        metavar="N",
        help=f"of each measurement; {SOAK_S} s for each of them for memory (default {FRAMES})",
    )
    parser.add_argument(
        "--only", metavar="A,B", default=",".join(STEPS), help=f"of {', '.join(STEPS)} (default: all)"
    )
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="parent of the new folder")
    parser.add_argument(
        "--summary", type=Path, metavar="FOLDER", help="only rewrite this folder's summary.md"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    for path, name in ((args.summary, "items.json"), (args.bundle, "bundle.json")):
        if path is not None and not (path / name).is_file():
            print(f"gpu_check: {path / name} does not exist; give a folder that has it", file=sys.stderr)
            return EXIT_BAD_INPUT
    steps = [step for step in args.only.split(",") if step]
    if unknown := [step for step in steps if step not in STEPS]:
        print(f"gpu_check: --only {unknown[0]} is not known; choose of {', '.join(STEPS)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if args.frames < 1:
        print(f"gpu_check: --frames is {args.frames}; it must be at least 1", file=sys.stderr)
        return EXIT_BAD_INPUT
    if args.summary is not None:
        return finish(args.summary)
    system = System()
    facts = gather(system)
    if not facts.cuda or facts.driver_problem:
        reason = facts.driver_problem if facts.kernel_driver or facts.smi else "no driver"
        print(f"gpu_check: no NVIDIA GPU that answers ({reason}); nothing was run", file=sys.stderr)
        return EXIT_NO_GPU
    now = datetime.now()
    check = Check(folder_for(facts, args.out.resolve(), now), args.frames)
    about = {"gpu": gpu_name(facts), "date": f"{now:%Y-%m-%d}", "environment": environment(system)}
    check.write("about.json", about)
    check.write("items.json", [])
    try:
        check_environment(check)
        for step in steps:
            STEPS[step](check, args.bundle)
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
    sys.exit(main())
