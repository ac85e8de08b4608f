"""Python of a frame: the tracker on a GPU that does nothing but take its time.

Median ms with the default policy on tracked frames, without and with the camera's motion from the images; on
a busy machine the tenth percentile says more. In series: of `Tracker.step`, while the GPU would wait for the
host. Beside the network: of the step, from its launch to the wait for its answers; beside the memory: from
the memory encoder's launch on. After the answer: `Tracker.commit`. The next image comes while the GPU works,
or, "GPU idle", just before its step; its announcement (`Tracker.prefetch`), in the node another thread's, is
not counted.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from efftam_ros.core.config import VIEWS, TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Frame, MemoryPlan, Prompt, TrackState
from efftam_ros.interop.moving_target import PERIOD_NS
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.api import NO_BINDINGS, Cuda, DeviceFacts
from efftam_ros.runtime.cuda.stream import CUDA_GRAPH, Stream
from efftam_ros.runtime.device.pipeline import DevicePipeline
from efftam_ros.runtime.frame_state import Answers
from efftam_ros.runtime.graphs import Tensor
from efftam_ros.runtime.image.prompts import EncodedPrompt
from efftam_ros.runtime.pipeline import open_tracker
from efftam_ros.tools.bench.command import image_size
from efftam_ros.tools.bench.frames import drawn_frames
from efftam_ros.tools.common.options import open_bundle

WARM_UP = 60
GPU_S = 2e-3
"""Time of a frame's network: that of the bundle that ships, on an H100."""
CASES = {"camera_motion off": ("off", True), "camera_motion auto": ("auto", True)}
CASES["camera_motion auto, GPU idle"] = ("auto", False)
"""By name, the camera's motion, and whether the next image comes while the GPU works."""
PARTS = ("in series", "beside the network", "beside the memory", "after the answer")
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


class IdleDriver:
    """Has the names of cuda.bindings.driver; every call succeeds at once and changes nothing."""

    def __init__(self, real: Any) -> None:
        self._real, self._success = real, real.CUresult.CUDA_SUCCESS
        self._numbers = itertools.count(ADDRESSES, 1 << 32)
        self._pinned: list[Any] = []
        answers: dict[str, Callable[..., Any]] = dict.fromkeys(
            (
                "cuMemAlloc",
                "cuEventCreate",
                "cuModuleLoadDataEx",
                "cuModuleGetFunction",
                "cuStreamEndCapture",
                "cuGraphInstantiate",
            ),
            lambda *_: next(self._numbers),
        )
        self._answers = answers | {
            "cuStreamCreate": lambda flags: real.CUstream(next(self._numbers)),
            "cuMemHostAlloc": self._host_memory,
            "cuMemHostGetDevicePointer": lambda pointer, flags: pointer,
            "cuEventElapsedTime": lambda start, end: 1.0,
        }

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if isinstance(value, int | type):
            return value
        answer = self._answers.get(name)
        done = (self._success,)
        call = (lambda *_: done) if answer is None else (lambda *arguments: (*done, answer(*arguments)))
        setattr(self, name, call)  # found without this detour from now on
        return call

    def _host_memory(self, nbytes: int, flags: int) -> int:
        self._pinned.append((ctypes.c_uint8 * nbytes)())
        return ctypes.addressof(self._pinned[-1])


class _IdleBinding:
    launch, alone = CUDA_GRAPH, ""

    def bind(self, name: str, pointer: int, shape: tuple[int, ...]) -> None:
        return

    def run(self) -> None:
        return

    enqueue = close = run


class _IdleGraphs:
    """A `GraphOpener`, and each of its graphs."""

    device_bytes = 0
    notice = ""
    inputs: Mapping[str, Tensor] = {}
    outputs: Mapping[str, Tensor] = {}

    def open(self, name: str) -> _IdleGraphs:
        return self

    def binding(self, fixed: bool) -> _IdleBinding:
        return _IdleBinding()

    def close(self) -> None:
        return


class IdlePipeline(DevicePipeline):
    """The target rests in the middle of the view, surely present."""

    def __init__(self, bundle: Bundle) -> None:
        """Raises InputError without cuda-bindings, which give the calls their names."""
        try:
            real = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise InputError(f"cuda-bindings can't be imported ({error}); {NO_BINDINGS}") from error
        cuda = Cuda(IdleDriver(real))
        super().__init__(bundle, cuda, FACTS, Stream(cuda), _IdleGraphs())
        boxes, areas, ious, presence, _ = self._tensors.answer_views[0]
        side = self.spec.image_side
        boxes[:] = np.array([0.4, 0.4, 0.6, 0.6]) * side + np.arange(4)[:, None]
        areas[:] = 0.03 * side**2
        ious[:], presence[:] = (0.8, 0.9, 0.85, 0.7), 8.0
        self.arrive: Callable[[], None] = lambda: None
        """Called while the GPU works."""
        self.times: dict[str, float] = {}
        """When the parts of the last frame began or ended, ms."""

    def _attend(self, plan: MemoryPlan) -> None:
        super()._attend(plan)
        self.times["launched"] = now_ms()

    def _decode(self, prompt: EncodedPrompt | None) -> Answers:
        self.times["waiting"] = now_ms()
        self.arrive()
        time.sleep(GPU_S)
        self.times["answered"] = now_ms()
        return super()._decode(prompt)

    def _remember(self, row: int, slot: int, present: bool) -> None:
        super()._remember(row, slot, present)
        self.times["remembering"] = now_ms()


def now_ms() -> float:
    return 1e3 * time.perf_counter()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=300, metavar="N", help="counted ones (default 300)")
    parser.add_argument("--image", type=image_size, default=(1280, 720), metavar="WxH", help="1280x720")
    parser.add_argument("--view", default="bundle", choices=VIEWS, help="default: the bundle's")


def run(args: argparse.Namespace) -> int:
    bundle = open_bundle(None)
    medians = {f"{name}, ms": measure(bundle, args, *case) for name, case in CASES.items()}
    print(
        json.dumps({"frames": args.frames, "image": list(args.image), "view": args.view, **medians}, indent=1)
    )
    return 0


def measure(
    bundle: Bundle, args: argparse.Namespace, camera: str, ahead: bool
) -> dict[str, dict[str, float]]:
    """``ahead``: the next image comes while the GPU works."""
    picture, _ = next(drawn_frames(args.image))
    width, height = args.image
    prompt = Prompt(box=Box(0.4 * width, 0.4 * height, 0.2 * width, 0.2 * height))
    pipeline = IdlePipeline(bundle)
    tracker = open_tracker(pipeline, TrackerConfig(view=args.view, camera_motion=camera))
    # An object of its own for each image, as of a camera.
    images = [replace(picture.image) for _ in range(WARM_UP + args.frames + 1)]
    spent = []
    for index, image in enumerate(images[:-1]):
        if ahead:
            pipeline.arrive = partial(tracker.prefetch, images[index + 1])
        else:
            tracker.prefetch(image)
        start = now_ms()
        stamped = Frame(image, picture.stamp_ns + index * PERIOD_NS)
        track = tracker.step(stamped, prompt if index == 0 else None)
        end, at = now_ms(), pipeline.times
        tracker.commit()
        if index >= WARM_UP:
            series = at["launched"] - start + at["remembering"] - at["answered"]
            beside = at["waiting"] - at["launched"], end - at["remembering"]
            spent.append([series, *beside, now_ms() - end])
    pipeline.close()
    if track.state is not TrackState.TRACKING:
        raise RuntimeError(f"the resting target was lost: {track.reason}")
    return {
        part: dict(zip(("median", "p10"), np.percentile(times, (50, 10)).round(3).tolist(), strict=True))
        for part, times in zip(PARTS, np.transpose(spent), strict=True)
    }
