"""Checks that gpu_check runs in separate processes. The first argument selects one; it prints JSON."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

SIZE = (1280, 720)
RATES = (0, 30, 60)
"""Rates of images, Hz; 0: back to back, so that the GPU's clocks do not drop between frames."""
TICK_S = 0.0005
PROFILED = 5
"""Number of runs of each engine in which its layers are timed."""
SMI = "clocks.sm,clocks.mem,temperature.gpu,clocks_throttle_reasons.active,pcie.link.gen.current"
SMI += ",pcie.link.width.current,power.draw"


def parse(bundle: Any) -> dict[str, str]:
    """Parse each graph with TensorRT in FP16 and FP32, without building engines.

    Returns the parser's error by "graph precision"; "" if the parser accepts the graph.
    """
    from efftam_ros.core.errors import BackendError
    from efftam_ros.runtime.tensorrt.library import load_library
    from efftam_workshop.export.fp16.convert import load_graphs, to_fp16
    from efftam_workshop.export.tensorrt.builder import parsed

    library = load_library()
    builder, found = library.start("Builder"), {}
    for name, model in load_graphs(bundle).items():
        for precision in ("fp16", "fp32"):
            graph = model if precision == "fp32" else to_fp16(model, name)
            try:
                parsed(library, builder, graph, precision)
                found[f"{name} {precision}"] = ""
            except BackendError as error:
                found[f"{name} {precision}"] = error.reason
    return found


def layers(bundle: Any) -> dict[str, Any]:
    """Describe the layers of each stored engine.

    Returns "layers", the descriptions by TensorRT's inspector; "layer_ms", the time of each layer in the last
    of `PROFILED` runs, ms; and "warnings", those of TensorRT.
    """
    from efftam_ros.runtime.backends import ENGINES
    from efftam_ros.runtime.device import opening
    from efftam_ros.runtime.device.memory import GRAPHS
    from efftam_ros.runtime.tensorrt.engine_set import EngineSet
    from efftam_ros.runtime.tensorrt.library import load_library

    library = load_library()
    with opening.device_session() as (cuda, facts, stream):
        engines = EngineSet(bundle, ENGINES.auto, library, facts, opening.engine_folder())
        with closing(engines.opener(stream)) as opener:
            graphs = {name: opener.open(name) for name in GRAPHS}
            return {
                "layers": {name: graph.layers() for name, graph in graphs.items()},
                "layer_ms": {name: layer_ms(library, cuda, stream, graph) for name, graph in graphs.items()},
                "warnings": library.log.warnings(),
            }


def layer_ms(library: Any, cuda: Any, stream: Any, graph: Any) -> dict[str, float]:
    """Return the time of each layer, ms, as TensorRT's profiler measures it on zeros of the usual shapes."""
    from efftam_ros.runtime.tensorrt.engine_set import AXES
    from efftam_workshop.agreement.runners import DeviceRunner

    profiler = library.module.IProfiler

    class Times(profiler):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            profiler.__init__(self)
            self.ms: dict[str, float] = {}

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.ms[layer_name] = round(float(ms), 5)

    times = Times()
    with closing(DeviceRunner(cuda, stream, graph)) as runner:
        runner._binding._context.profiler = times
        inputs = {}
        for name, tensor in graph.inputs.items():
            shape = [AXES[axis][1] if isinstance(axis, str) else axis for axis in tensor.shape]
            inputs[name] = np.zeros(shape, tensor.dtype)
        for _ in range(PROFILED):
            runner(inputs)
    return times.ms


def frames(bundle: Any, backend: str, count: int, spinning: bool) -> list[dict[str, Any]]:
    """Measure every frame with the default policy at each of `RATES`, and the state of the machine meanwhile.

    ``count``: frames per rate. ``spinning``: whether the host polls the GPU instead of sleeping.
    """
    from efftam_ros.core.config import TrackerConfig
    from efftam_ros.runtime.backends import PipelineConfig
    from efftam_ros.runtime.cuda.stream import Event
    from efftam_ros.runtime.opening import open_pipeline
    from efftam_workshop.bench.frames import drawn_frames, timed

    if spinning:
        Event.wait = _spin  # type: ignore[method-assign]
    found = []
    with closing(open_pipeline(PipelineConfig(backend=backend, verify="never"), bundle)) as pipeline:
        for rate in RATES:
            before, steal = resource.getrusage(resource.RUSAGE_SELF), _steal()
            with _second_thread() as pause, _tegrastats() as board:
                answers = timed(pipeline, TrackerConfig(), _paced(drawn_frames(SIZE), rate))
                times = [1e3 * next(answers)[1] for _ in range(count)]
            after = resource.getrusage(resource.RUSAGE_SELF)
            found.append(
                {
                    "rate_hz": rate,
                    "median_ms": float(np.median(times)),
                    "p99_ms": float(np.percentile(times, 99)),
                    "frames_ms": [round(ms, 4) for ms in times],
                    "longest_pause_ms": pause["ms"],
                    "context_switches": [
                        after.ru_nvcsw - before.ru_nvcsw,
                        after.ru_nivcsw - before.ru_nivcsw,
                    ],
                    "stolen_ticks": _steal() - steal,
                    "tegrastats": board,
                    "gpu": dict(zip(SMI.split(","), _ask("nvidia-smi", f"--query-gpu={SMI}"), strict=False)),
                }
            )
    return found


LIFE = ("configure", "activate", "frames", "deactivate", "activate", "deactivate", "cleanup", "configure")
ANSWER_S = 60.0


def node(bundle: Path | None, backend: str, count: int) -> int:
    """Run the tracker's node through the steps `LIFE`, then end it by SIGTERM; returns its exit code.

    Prints the memory in use after each step. ``count``: number of tracked frames. Images are passed directly
    to the node's callback, because the middleware is not checked here.
    """
    from rclpy.lifecycle import TransitionCallbackReturn

    from efftam_ros.ros.common.process import run_node
    from efftam_ros.ros.tracker.node import TrackerNode

    class Lived(TrackerNode):
        def start(self) -> None:
            steps = []
            for step in LIFE:
                if step == "frames":
                    _track(self, count)
                elif getattr(self, f"trigger_{step}")() != TransitionCallbackReturn.SUCCESS:
                    raise RuntimeError(f"{step}: {self.fault}")
                pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
                resident_mb = round(pages * resource.getpagesize() / 1e6, 1)
                gpu = _ask("nvidia-smi", "--query-gpu=memory.used")
                steps.append({"step": step, "resident_mb": resident_mb, "gpu": gpu})
            print(json.dumps({"steps": steps}), flush=True)
            os.kill(os.getpid(), signal.SIGTERM)

    given = {"autostart": "false", "backend": backend, "image_timeout": str(ANSWER_S)}
    given |= {"bundle": str(bundle)} if bundle else {}
    parameters = [part for name, value in given.items() for part in ("-p", f"{name}:={value}")]
    return run_node("efftam_tracker", Lived, ["efftam_tracker", "--ros-args", *parameters])


def _track(tracker: Any, count: int) -> None:
    """Have the active node track the target of drawn images for ``count`` frames.

    Raises RuntimeError if the node does not answer or does not track the target.
    """
    from efftam_ros.msg import TargetSelection
    from efftam_ros.srv import SelectTarget
    from sensor_msgs.msg import Image

    from efftam_ros.images.message import fill_image
    from efftam_workshop.bench.frames import drawn_frames

    (images,) = (made for made in tracker.subscriptions if made.topic_name.endswith("/image"))
    (boxes,) = (made for made in tracker.publishers if made.topic_name.endswith("/bbox"))
    (select,) = (made for made in tracker.services if made.srv_name.endswith("select_target"))
    answered, answers = threading.Semaphore(0), []
    boxes.publish = lambda message: (answers.append(message), answered.release())
    for frame, prompt in islice(drawn_frames(SIZE), count + 1):
        pixels = frame.image.rows.reshape(frame.image.height, frame.image.width, 3)
        message = fill_image(Image(), pixels, frame.image.encoding)
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(frame.stamp_ns + 10**9, 10**9)
        images.callback(message)
        if not answered.acquire(timeout=ANSWER_S):
            raise RuntimeError(f"no answer within {ANSWER_S:g} s")
        if prompt is not None:
            x, y, width, height = prompt.box.xywh()
            box = TargetSelection(kind=TargetSelection.BOX, x=x, y=y, width=width, height=height)
            response = select.callback(SelectTarget.Request(selection=box), SelectTarget.Response())
            if not response.success or not answered.acquire(timeout=ANSWER_S):
                raise RuntimeError(f"the selection has no answer: {response.message}")
    if not answers[-1].measured:
        raise RuntimeError(f"after {count} frames the target is not tracked: {answers[-1].reason}")


def _spin(event: Any) -> None:
    """Wait for an event by polling; replaces `Event.wait`, in which the host sleeps."""
    cuda, handle = event._cuda, event.handle
    not_ready = int(cuda.driver.CUresult.CUDA_ERROR_NOT_READY)
    while True:
        (status,) = cuda.driver.cuEventQuery(handle)
        if int(status) != not_ready:
            cuda.checked("cuEventQuery", (status,))
            return


def _paced(given: Iterator[Any], rate: float) -> Iterator[Any]:
    due = time.perf_counter()
    for one in given:
        if rate:
            due = max(due + 1 / rate, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
        yield one


@contextmanager
def _second_thread() -> Iterator[dict[str, float]]:
    """Run a second thread that is always ready to run, as that of an image callback may be.

    Yields a dict with its longest pause so far, ms.
    """
    pause, ended = {"ms": 0.0}, threading.Event()

    def work() -> None:
        last = time.perf_counter()
        while not ended.is_set():
            time.sleep(TICK_S)
            now = time.perf_counter()
            pause["ms"], last = max(pause["ms"], 1e3 * (now - last - TICK_S)), now

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield pause
    finally:
        ended.set()
        thread.join()


@contextmanager
def _tegrastats() -> Iterator[list[str]]:
    """Record a Jetson's clocks, temperatures and power inside a ``with`` block, a line every 0.2 s.

    Yields a list that receives the lines at the end of the block; it stays empty without tegrastats.
    """
    lines: list[str] = []
    path = shutil.which("tegrastats")
    if path is None:
        yield lines
        return
    command = [path, "--interval", "200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        try:
            yield lines
        finally:
            process.terminate()
            assert process.stdout is not None
            lines += process.stdout.read().splitlines()


def _steal() -> int:
    """Return the processor time that a hypervisor has taken from this machine so far, in ticks."""
    return int(Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[8])


def _ask(program: str, *arguments: str) -> list[str]:
    path = shutil.which(program)
    if path is None:
        return []
    done = subprocess.run(
        [path, *arguments, "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return [cell.strip() for cell in done.stdout.partition("\n")[0].split(",")]


def main() -> int:
    from efftam_ros.tools.common.options import open_bundle

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("parse", "layers", "frames", "node"))
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--backend")
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--spinning", action="store_true", help="the host polls instead of sleeping")
    args = parser.parse_args()
    if args.what == "node":
        return node(args.bundle, args.backend, args.frames)
    bundle = open_bundle(args.bundle)
    if args.what == "parse":
        print(json.dumps({"refused": parse(bundle)}))
    elif args.what == "layers":
        print(json.dumps(layers(bundle)))
    else:
        print(json.dumps({"rates": frames(bundle, args.backend, args.frames, args.spinning)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
