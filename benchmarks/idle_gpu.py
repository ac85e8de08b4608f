"""Time that the host's Python code takes for a frame, with a simulated GPU.

The tracker runs on a GPU that computes nothing, but takes a given time for each piece of work on its streams.

Results are the median and the tenth percentile, in ms, of tracked frames with the default policy, without and
with estimation of the camera's motion. On a busy machine the tenth percentile is the better one. The parts
are:
in series: work of `Tracker.step` during which the GPU would wait for the host.
beside the network: work of the step from the launch of the network until the wait for its answers.
after the answer: work of `TargetSet.remember` from the launch of the memory encoder on.
The next image arrives while the GPU works, or, in cases with "GPU idle", just before its step. The time of
`TargetSet.prefetch` is not counted, because another thread of the node calls it.

Frame over modules: time of a frame, of frames back to back, divided by the sum of the times of its four
modules as given by --modules (default: an H100 with the shipped network). It is measured with each graph
launched by itself, as onnxruntime does, and with two graphs, as with TensorRT. The host's time is here the
processor time of its thread, so other programs do not change it. GPU idle: time without work from a frame's
answers to its memory encoder (the host wakes up and chooses), and from there to the next network.

--costs: times that ``efftam bench --timeline --json FILE`` has measured on a GPU replace these constants:
those of modules, calls of the driver, launches and waking up. Then only the frame of `efftam bench` is
simulated, and compared with the measured one. `within` is true if both differ by at most 10 %.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from efftam_ros.core.config import VIEWS, TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Frame, Image, Prompt, TrackState
from efftam_ros.runtime.bundle import Bundle, Tensor
from efftam_ros.runtime.cuda.api import NO_BINDINGS, Cuda, DeviceFacts
from efftam_ros.runtime.cuda.stream import CUDA_GRAPH, Stream
from efftam_ros.runtime.device.memory import ATTENTION, GRAPHS
from efftam_ros.runtime.device.pipeline import DevicePipeline
from efftam_ros.runtime.frame_state import Chosen, TargetFrame
from efftam_ros.runtime.opening import open_targets
from efftam_ros.tools.common.options import open_bundle
from efftam_workshop.bench.command import image_size
from efftam_workshop.bench.frames import drawn_frames
from efftam_workshop.bench.moving_target import PERIOD_NS
from efftam_workshop.bench.timeline.costs import MODULES, DeviceCosts, read_costs

WARM_UP = 60
H100_MS = (0.48, 0.45, 0.70, 0.24)
"""Times of image encoder, memory attention, mask decoder and memory encoder of the shipped bundle, ms."""
KERNEL_S, LINK = 5e-6, 25e9
"""Time of a kernel or of starting a copy, s; bytes per second of a copy."""
RUN_S = 40e-6
"""The host's time for a call of onnxruntime that launches a captured graph, s."""
WAKE_MS = 0.1
"""Time from the GPU's answer until a host that sleeps continues, ms."""
STAGE_OF = {ATTENTION: "memory_attention"}
NO_COSTS = DeviceCosts(frame_ms=0.0, modules_ms={}, calls_us={}, run_us={})
"""No measured times: the constants of this module are used."""
WITHIN = 0.1
"""Largest relative difference between simulated and measured frame."""
CASES = {"camera_motion off": ("off", True), "camera_motion auto": ("auto", True)}
CASES["camera_motion auto, GPU idle"] = ("auto", False)
"""For each case: the setting camera_motion, and whether the next image arrives while the GPU works."""
PARTS = ("in series", "beside the network", "after the answer")
HOW = {"each graph by itself": "as onnxruntime does", "two graphs": ""}
ADDRESSES = 0x7000_0000_0000
FACTS = DeviceFacts(
    index=0,
    name="idle",
    compute_capability=(8, 9),
    multiprocessors=128,
    total_bytes=24 << 30,
    free_bytes=24 << 30,
    integrated=False,
    driver_version=12090,
)


@dataclass
class GpuClock:
    """The simulated time of the GPU, s.

    ``busy``: when each stream will have finished its work, by the stream's handle.
    ``events``: the time at which each event is reached.
    ``graphs``: how long each captured graph takes. ``captured``: how long the work takes that is being
    captured, None while nothing is.
    ``skipped``: sum of the waits by which the clock was advanced; the clock then counts this thread's
    processor time. None: the clock is the wall clock, and the host sleeps when it waits.
    ``idle_s``: sum of the times between two pieces of work, for each stream.
    """

    skipped: float | None = None
    wake_s: float = 0.0
    costs: DeviceCosts = NO_COSTS
    busy: dict[int, float] = field(default_factory=dict)
    events: dict[int, float] = field(default_factory=dict)
    graphs: dict[int, float] = field(default_factory=dict)
    captured: float | None = None
    idle_s: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))

    def now(self) -> float:
        return time.perf_counter() if self.skipped is None else time.thread_time() + self.skipped

    def work(self, stream: int, seconds: float) -> None:
        """Add work of this length to a stream, or to the graph that is being captured."""
        if self.captured is not None:
            self.captured += seconds
        else:
            self.let_start(stream, self.now())
            self.busy[stream] += seconds

    def let_start(self, stream: int, moment: float) -> None:
        """Let the stream's next work begin at ``moment``, or later when its earlier work is finished."""
        free = self.busy.setdefault(stream, moment)
        self.busy[stream] = max(free, moment)
        self.idle_s[stream] += self.busy[stream] - free

    def begin_launch(self, stream: int) -> None:
        """Let the stream's next work begin after the time that a launch takes to reach the GPU."""
        self.let_start(stream, self.now() + 1e-6 * (self.costs.start_us or 0.0))

    def wait(self, moment: float) -> None:
        """Let the host wait until ``moment``."""
        left = moment - self.now()
        if left > 0 and self.skipped is None:
            time.sleep(left)
        elif left > 0:
            self.skip(left + self.wake_s)

    def skip(self, seconds: float) -> None:
        """Advance the clock without using processor time. Does nothing on the wall clock."""
        if self.skipped is not None:
            self.skipped += seconds

    def call(self, name: str) -> None:
        """Advance the clock by the time that the driver's function ``name`` takes on the host."""
        self.skip(1e-6 * self.costs.calls_us.get(name, 0.0))

    @property
    def kernel_s(self) -> float:
        """Time of a kernel or a small copy, s."""
        return KERNEL_S if self.costs.kernel_us is None else 1e-6 * self.costs.kernel_us

    @property
    def link(self) -> float:
        """Bytes per second of a copy."""
        return LINK if self.costs.bytes_per_us is None else 1e6 * self.costs.bytes_per_us


class IdleDriver:
    """Stands in for the module cuda.bindings.driver.

    Every call succeeds and computes nothing, but takes time on the simulated streams.
    """

    def __init__(self, real: Any, clock: GpuClock) -> None:
        self._real, self._success = real, real.CUresult.CUDA_SUCCESS
        self._numbers = itertools.count(ADDRESSES, 1 << 32)
        self._pinned: list[Any] = []
        self.clock = clock
        answers: dict[str, Callable[..., Any]] = dict.fromkeys(
            ("cuMemAlloc", "cuEventCreate", "cuModuleLoadDataEx", "cuModuleGetFunction"),
            lambda *_: next(self._numbers),
        )
        self._answers = answers | {
            "cuStreamCreate": lambda flags: real.CUstream(next(self._numbers)),
            "cuMemHostAlloc": self._host_memory,
            "cuMemHostGetDevicePointer": lambda pointer, flags: pointer,
            "cuEventElapsedTime": lambda start, end: 1.0,
            "cuStreamEndCapture": self._end_capture,
            "cuGraphInstantiate": lambda graph, flags: graph,
        }
        self._timed: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync"), self._copy),
            "cuMemcpy2DAsync": lambda part, stream: self._copy(0, 0, part.WidthInBytes * part.Height, stream),
            "cuLaunchKernel": lambda *given: clock.work(int(given[8]), clock.kernel_s),
            "cuStreamBeginCapture": lambda *_: setattr(clock, "captured", 0.0),
            "cuGraphLaunch": self._launch,
            "cuEventRecord": self._record,
            "cuStreamWaitEvent": self._let_wait,
            "cuEventSynchronize": lambda event: clock.wait(clock.events.get(event, 0.0)),
            "cuStreamSynchronize": lambda stream: clock.wait(clock.busy.get(int(stream), 0.0)),
        }

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if isinstance(value, int | type):
            return value
        answer, timed = self._answers.get(name), self._timed.get(name)
        done = (self._success,)
        spend = partial(self.clock.call, name)
        call: Callable[..., Any] = lambda *_: (spend(), done)[1]  # noqa: E731
        if timed is not None:
            call = lambda *arguments: (timed(*arguments), spend(), done)[2]  # noqa: E731
        elif answer is not None:
            call = lambda *arguments: (*done, answer(*arguments))  # noqa: E731
        setattr(self, name, call)  # later uses find the attribute, without a call of __getattr__
        return call

    def _host_memory(self, nbytes: int, flags: int) -> int:
        self._pinned.append((ctypes.c_uint8 * nbytes)())
        return ctypes.addressof(self._pinned[-1])

    def _copy(self, to: Any, source: Any, nbytes: int, stream: Any) -> None:
        self.clock.work(int(stream), self.clock.kernel_s + nbytes / self.clock.link)

    def _launch(self, graph: int, stream: Any) -> None:
        self.clock.begin_launch(int(stream))
        self.clock.work(int(stream), self.clock.graphs[graph])

    def _end_capture(self, stream: Any) -> int:
        number = next(self._numbers)
        self.clock.graphs[number], self.clock.captured = self.clock.captured or 0.0, None
        return number

    def _record(self, event: int, stream: Any) -> None:
        self.clock.events[event] = self.clock.busy.get(int(stream), 0.0)

    def _let_wait(self, stream: Any, event: int, flags: int) -> None:
        self.clock.let_start(int(stream), self.clock.events.get(event, 0.0))


@dataclass
class _IdleGraph:
    """A `DeviceGraph` and its own binding, which only take ``seconds``. ``alone``: as in `Binding.alone`."""

    stream: int
    clock: GpuClock
    seconds: float
    alone: str
    name: str = ""
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    launch: str = CUDA_GRAPH

    def binding(self, fixed: bool) -> _IdleGraph:
        return self

    def bind(self, name: str, pointer: int, shape: tuple[int, ...]) -> None:
        return

    def run(self) -> None:
        measured_us = self.clock.costs.run_us.get(self.name)
        if self.alone and measured_us is None:
            self.clock.skip(RUN_S)
            self.enqueue()
            return
        self.clock.begin_launch(self.stream)
        self.enqueue()
        self.clock.skip(1e-6 * (measured_us or 0.0))

    def enqueue(self) -> None:
        self.clock.work(self.stream, self.seconds)

    def close(self) -> None:
        return


@dataclass
class _IdleGraphs:
    """A `GraphOpener` for `_IdleGraph`. ``seconds``: time of each graph, by name."""

    stream: int
    clock: GpuClock
    seconds: Mapping[str, float]
    alone: str
    device_bytes: int = 0
    notice: str = ""

    made_of = "graphs that only take time"

    def open(self, name: str) -> _IdleGraph:
        seconds = self.seconds.get(name, self.clock.kernel_s)
        return _IdleGraph(self.stream, self.clock, seconds, self.alone, STAGE_OF.get(name, name))

    def close(self) -> None:
        return


class IdlePipeline(DevicePipeline):
    """A pipeline on the simulated GPU. Its answer is always a present target in the middle of the view."""

    def __init__(self, bundle: Bundle, modules_ms: Sequence[float], clock: GpuClock, alone: str = "") -> None:
        """Create the pipeline. ``modules_ms``: times of the four modules; ``alone``: as in `Binding.alone`.

        Raises InputError if cuda-bindings is not installed, whose constants and names are used.
        """
        try:
            real = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise InputError(f"cuda-bindings can't be imported ({error}); {NO_BINDINGS}") from error
        cuda = Cuda(IdleDriver(real, clock))
        stream = Stream(cuda)
        names = [name for name in GRAPHS if name != "prompt_encoder"]
        seconds = {name: 1e-3 * ms for name, ms in zip(names, modules_ms, strict=True)}
        super().__init__(bundle, cuda, FACTS, stream, _IdleGraphs(stream.handle, clock, seconds, alone))
        self.now_ms = lambda: 1e3 * clock.now()
        self.idle_ms = lambda: 1e3 * clock.idle_s[stream.handle]
        boxes, areas, ious, presence, *levels = self._tensors.answer_views[0]
        side = self.spec.image_side
        boxes[:] = np.array([0.4, 0.4, 0.6, 0.6]) * side + np.arange(4)[:, None]
        for level in levels:
            level[:] = boxes[:, None]
        areas[:] = 0.03 * side**2
        ious[:], presence[:] = (0.8, 0.9, 0.85, 0.7), 8.0
        self.arrive: Callable[[], None] = lambda: None
        """Function that is called while the GPU works."""
        self.times: dict[str, float] = {}
        """Times at which the parts of the last frame began or ended, ms, and the GPU's idle time then, ms."""

    def _launch(self, image: Image, views: Sequence[tuple[TargetFrame, View]]) -> None:
        super()._launch(image, views)
        self.times |= {"launched": self.now_ms(), "idle at launch": self.idle_ms()}

    def _wait(self, frame: TargetFrame) -> None:
        self.times["waiting"] = self.now_ms()
        self.arrive()
        super()._wait(frame)
        self.times["answered"] = self.now_ms()

    def _remember(self, chosen: Chosen) -> None:
        super()._remember(chosen)
        self.times |= {"remembering": self.now_ms(), "idle before": self.times.get("idle", 0.0)}
        self.times["idle"] = self.idle_ms()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=300, metavar="N", help="counted frames (default 300)")
    parser.add_argument(
        "--image", type=image_size, default=(1280, 720), metavar="WxH", help="size of images (1280x720)"
    )
    parser.add_argument("--view", default="bundle", choices=VIEWS, help="default: that of the bundle")
    parser.add_argument(
        "--bundle", type=Path, metavar="DIR", help="network bundle (default: the shipped one)"
    )
    text = f"times of the four modules, in their order (default {', '.join(map(str, H100_MS))})"
    parser.add_argument(
        "--wake", type=float, default=WAKE_MS, metavar="MS", help=f"time to wake up ({WAKE_MS})"
    )
    costs = "report of efftam bench --timeline --json on a GPU"
    parser.add_argument("--costs", type=Path, metavar="FILE", help=costs)
    parser.add_argument("--modules", type=modules_ms, default=H100_MS, metavar="MS,MS,MS,MS", help=text)


def modules_ms(text: str) -> tuple[float, ...]:
    try:
        found = tuple(map(float, text.split(",")))
    except ValueError:
        found = ()
    if len(found) != len(H100_MS) or not all(0 < ms < 1e4 for ms in found):
        raise argparse.ArgumentTypeError(f"{text!r} is not four times in ms; give such as 0.48,0.45,0.7,0.24")
    return found


def run(args: argparse.Namespace) -> int:
    bundle = open_bundle(args.bundle)
    found: dict[str, Any] = {"frames": args.frames, "image": list(args.image), "view": args.view}
    if args.costs is not None:
        print(json.dumps(found | predicted(bundle, args, read_costs(args.costs)), indent=1))
        return 0
    for name, (camera, ahead) in CASES.items():
        spent = measure(bundle, args, GpuClock(), camera_motion=camera, ahead=ahead)
        found[f"{name}, ms"] = {
            part: _figures(times) for part, times in zip(PARTS, np.transpose(spent), strict=False)
        }
    for policy, (how, alone) in itertools.product(("efficienttam", "default"), HOW.items()):
        clock = GpuClock(skipped=0.0, wake_s=1e-3 * args.wake)
        spent = measure(bundle, args, clock, alone, policy=policy, camera_motion="off")
        *_, network, memory, whole = np.transpose(spent)
        found[f"{policy}, {how}"] = {
            "frame over modules": _figures(whole / sum(args.modules)),
            "GPU idle before the memory encoder, ms": _figures(memory),
            "GPU idle before the next network, ms": _figures(network),
        }
    print(json.dumps(found, indent=1))
    return 0


def predicted(bundle: Bundle, args: argparse.Namespace, costs: DeviceCosts) -> dict[str, Any]:
    """Simulate the frame of `efftam bench` with measured costs, and compare it with the measured frame."""
    alone = "as measured" if "image_encoder" in costs.run_us else ""
    clock = GpuClock(skipped=0.0, wake_s=1e-6 * (costs.wake_us or 0.0), costs=costs)
    args.modules = [costs.modules_ms[name] for name in MODULES]
    spent = measure(bundle, args, clock, alone, ahead=None)
    frame_ms = float(np.median([whole for *_, whole in spent]))
    modules = sum(args.modules)
    return {
        "simulated frame, ms": round(frame_ms, 4),
        "measured frame, ms": round(costs.frame_ms, 4),
        "frame over modules, simulated": round(frame_ms / modules, 4),
        "frame over modules, measured": round(costs.frame_ms / modules, 4),
        "simulated over measured": round(frame_ms / costs.frame_ms, 4),
        "within": abs(frame_ms / costs.frame_ms - 1) <= WITHIN,
    }


def _figures(values: Any) -> dict[str, float]:
    return dict(zip(("median", "p10"), np.percentile(values, (50, 10)).round(3).tolist(), strict=True))


def measure(
    bundle: Bundle,
    args: argparse.Namespace,
    clock: GpuClock,
    alone: str = "",
    ahead: bool | None = True,
    **tracking: Any,
) -> list[list[float]]:
    """Return the times of each frame, ms.

    Args:
        bundle: Bundle of the network.
        args: The options ``frames``, ``image``, ``view`` and ``modules``.
        clock: Clock of the simulated GPU.
        alone: As in `Binding.alone`.
        ahead: True: the next image arrives while the GPU works; False: just before its step; None: images
            are not announced to the tracker.
        tracking: Settings of the tracker.

    Returns:
        For each frame the times of `PARTS`, how long the GPU was idle before the network and before the
        memory encoder, and the time from its step to the next step.
    """
    picture, _ = next(drawn_frames(args.image))
    width, height = args.image
    prompt = Prompt(box=Box(0.4 * width, 0.4 * height, 0.2 * width, 0.2 * height))
    pipeline = IdlePipeline(bundle, args.modules, clock, alone)
    now_ms = pipeline.now_ms
    targets = open_targets(pipeline, TrackerConfig(view=args.view, **tracking))
    # A new object for each image, as images of a camera are: `prefetch` recognises an image by its object.
    images = [replace(picture.image) for _ in range(WARM_UP + args.frames + 1)]
    spent = []
    start = now_ms()
    for index, image in enumerate(images[:-1]):
        if ahead:
            pipeline.arrive = partial(targets.prefetch, images[index + 1])
        elif ahead is None:
            start = now_ms()
        else:
            targets.prefetch(image)
            start = now_ms()
        stamped = Frame(image, picture.stamp_ns + index * PERIOD_NS)
        ((_, track, *_),) = targets.step(stamped, {} if index else {0: prompt})
        targets.remember()
        done, at = now_ms(), pipeline.times
        if index >= WARM_UP:
            series = at["launched"] - start + at["remembering"] - at["answered"]
            beside = at["waiting"] - at["launched"], done - at["remembering"]
            idle = at["idle at launch"] - at["idle before"], at["idle"] - at["idle at launch"]
            spent.append([series, *beside, *idle, done - start])
        start = done
    pipeline.close()
    if track.state is not TrackState.TRACKING:
        raise RuntimeError(f"the resting target was lost: {track.reason}")
    return spent
