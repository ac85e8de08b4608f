"""Python of a frame: the tracker on a GPU that does nothing.

Median ms with the default policy on tracked frames in full view, their images fetched ahead, without and with
the camera's motion from the images. In series: of `Tracker.step`, while a GPU would wait for the host. Beside
the GPU: of the step, between the network's launch and the wait for its answers. After the answer:
`Tracker.commit`.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import itertools
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from efftam_ros.core.config import TrackerConfig
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
        self._launched_s, self.beside_s = 0.0, 0.0

    def _attend(self, plan: MemoryPlan) -> None:
        super()._attend(plan)
        self._launched_s = time.perf_counter()

    def _decode(self, prompt: EncodedPrompt | None) -> Answers:
        self.beside_s = 0.0 if prompt is not None else time.perf_counter() - self._launched_s
        return super()._decode(prompt)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=300, metavar="N", help="counted ones (default 300)")
    parser.add_argument("--image", type=image_size, default=(1280, 720), metavar="WxH", help="1280x720")


def run(args: argparse.Namespace) -> int:
    bundle, medians = open_bundle(None), {}
    frame, _ = next(drawn_frames(args.image))
    width, height = args.image
    prompt = Prompt(box=Box(0.4 * width, 0.4 * height, 0.2 * width, 0.2 * height))
    for camera in ("off", "auto"):
        pipeline = IdlePipeline(bundle)
        tracker = open_tracker(pipeline, TrackerConfig(view="full", camera_motion=camera))
        parts: dict[str, list[float]] = {"in series": [], "beside the GPU": [], "after the answer": []}
        for index in range(WARM_UP + args.frames):
            stamped = Frame(frame.image, frame.stamp_ns + index * PERIOD_NS)
            tracker.prefetch(frame.image)
            start = time.perf_counter()
            track = tracker.step(stamped, prompt if index == 0 else None)
            answered = time.perf_counter()
            tracker.commit()
            spent = (answered - start - pipeline.beside_s, pipeline.beside_s, time.perf_counter() - answered)
            for times, seconds in zip(parts.values(), spent, strict=True):
                times.append(1e3 * seconds)
        pipeline.close()
        if track.state is not TrackState.TRACKING:
            raise RuntimeError(f"the resting target was lost: {track.reason}")
        medians[f"camera_motion {camera}, ms"] = {
            part: round(float(np.median(times[WARM_UP:])), 4) for part, times in parts.items()
        }
    print(json.dumps({"frames": args.frames, "image": list(args.image), **medians}, indent=1))
    return 0
