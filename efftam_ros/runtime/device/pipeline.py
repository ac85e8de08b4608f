"""The pipeline whose tensors stay on the GPU: one stream, one wait per look, nothing allocated per image."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.runtime.bundle import NEEDED, Bundle
from efftam_ros.runtime.cuda.api import Cuda, CudaError, DeviceFacts
from efftam_ros.runtime.cuda.kernel_table import PREPROCESS_PARAMS, VIEW_BYTES
from efftam_ros.runtime.cuda.memory import HostBuffer
from efftam_ros.runtime.cuda.module import KernelSet
from efftam_ros.runtime.cuda.preprocess_params import PreprocessParameters
from efftam_ros.runtime.cuda.stream import Event, Stream
from efftam_ros.runtime.device.image import DeviceImage, MaskMaker
from efftam_ros.runtime.device.memory import RINGS
from efftam_ros.runtime.device.network import SECTIONS, DeviceNetwork
from efftam_ros.runtime.device.section import StageClock
from efftam_ros.runtime.device.tensors import MAX_VIEWS, VIEWS, DeviceTensors
from efftam_ros.runtime.frame_state import Chosen, Features, FrameState, TargetFrame
from efftam_ros.runtime.spans import COPIES, Watch, cause_of_driver_call, watch_methods

if TYPE_CHECKING:
    from efftam_ros.runtime.device.graph import GraphOpener


STAGES = ("preprocess", *NEEDED)


class DevicePipeline(FrameState):
    """The `Pipeline` contract on one GPU, with the graphs run by a `GraphOpener`.

    The host sees scores and boxes, and masks where somebody wants them; it waits once for all looks of a
    call, when the first candidates are asked for. Two non-blocking streams: an image's bytes go up and are
    preprocessed on one, beside the memory encoder of the image before; the network runs on the other, behind
    an event. A tracked image has two sections for each target, each launched as one CUDA graph where the
    library allows it: from the memory plan to the answers, and from the choice to the memory.

    All targets' features are computed in one place. A view that several ask for is encoded once: the
    section of all but the first leaves out the image encoder. Before another view is encoded, the features
    that are still to be remembered are copied to places of their targets' own.
    """

    is_on_gpu = True

    def __init__(
        self,
        bundle: Bundle,
        cuda: Cuda,
        facts: DeviceFacts,
        stream: Stream,
        opener: GraphOpener,
        zero_copy: bool = False,
        max_targets: int = 1,
    ) -> None:
        """Takes over ``stream`` and ``opener`` and closes them. ``zero_copy``: kernels read images from
        pinned host memory. Raises BackendError (a graph that can't run on the GPU), CudaError (too little
        memory, no kernel for this GPU) and InputError."""
        super().__init__(bundle.spec, max_targets)
        self._threads = _Threads(cuda, facts.index)
        self._stream, self._opener = stream, opener
        self._images = stream
        # Launched work that the host has not waited for: looks, their views, and the places of their answers.
        self._launched: list[tuple[TargetFrame, View, int]] = []
        self._begin_s = 0.0  # when the last look began
        self._present: Features | None = None  # the features that the image encoder computed last
        self._in_place: set[int] = set()  # targets whose frames have these features
        self._apart: set[int] = set()  # and those whose features were copied to places of their own
        self._closing = ExitStack()
        self._closing.callback(cuda.close)
        self._closing.callback(stream.close)
        self._closing.callback(opener.close)
        owned = self._closing.enter_context
        try:
            self._images = owned(closing(Stream(cuda)))
            self._tensors = DeviceTensors(bundle, cuda, self._closing, max_targets)
            self._tensors.zero(stream)
            kernels = owned(closing(KernelSet(cuda)))
            self._image_ready, self._answered = (owned(closing(Event(cuda))) for _ in range(2))
            self._clock = owned(closing(StageClock(cuda, STAGES)))
            side = bundle.spec.image_side
            parameters = PreprocessParameters(side, bundle.mean, bundle.std)
            self._image = DeviceImage(cuda, kernels, parameters, side, zero_copy)
            self._closing.callback(self._image.free)
            self._masks = owned(closing(MaskMaker(cuda, kernels, self._tensors, self._images)))
            self._network = DeviceNetwork(
                bundle, opener, self._tensors, kernels, stream, self._clock, self._closing
            )
            self._network.capture()
        except BaseException:
            self._close()
            raise

    @property
    def launch(self) -> Mapping[str, str]:
        """How each graph of a tracked frame is started (`Binding.launch`), and how its sections are."""
        network, first = self._network, self._network.lanes[0]
        sections = {SECTIONS[0]: first.track.launch, SECTIONS[-1]: first.keep.launch}
        return {name: binding.launch for name, binding in network.tracked.items()} | sections

    @property
    def notice(self) -> str:  # type: ignore[override]
        return self._opener.notice

    @property
    def target_bytes(self) -> int:  # type: ignore[override]
        return self._tensors.lane_bytes

    @property
    def device_bytes(self) -> int:
        """Device memory held, as far as it is known."""
        return sum(one.device_bytes for one in (self._tensors, self._image, self._masks, self._opener))

    @property
    def made_of(self) -> str:
        """See `GraphOpener.made_of`."""
        return self._opener.made_of

    def tensor(self, name: str, target: int = 0) -> NDArray[np.float32]:
        """See `verify.Inspected`; waits for the GPU."""
        self._threads.make_current()
        shape = self._tensors.shapes[name]
        host = HostBuffer(self._stream.cuda, 4 * math.prod(shape))
        try:
            self._synchronize()
            self._stream.copy_out(host, self._tensors.at(name), 4 * math.prod(shape))
            self._stream.synchronize()
            whole = host.view(np.float32, shape).copy()
            return np.split(whole, self.max_targets)[target] if name in RINGS else whole
        finally:
            host.free()

    @property
    def stage_interval(self) -> int:
        """Of so many frames the first is timed for `Answers.stage_seconds`; 1: every frame."""
        return self._clock.interval

    @stage_interval.setter
    def stage_interval(self, frames: int) -> None:
        self._clock.interval = frames

    def watch(self, watch: Watch) -> None:
        super().watch(watch)
        self._network.watch(watch)
        watch_methods(watch, COPIES, self._image, "prepare", label="stage image")
        cuda, plain = self._stream.cuda, self._stream.cuda.call
        calls: dict[str, Callable[..., Any]] = {}

        def call(name: str, *arguments: Any, **detail: str) -> Any:
            if name not in calls:
                calls[name] = watch(cause_of_driver_call(name), name, partial(plain, name))
            return calls[name](*arguments, **detail)

        cuda.call = call  # type: ignore[method-assign]

    def mark(self) -> tuple[Event, int]:
        """Return an event that the GPU passes now, and when, ns of `time.perf_counter_ns`, to some us. Waits
        for the GPU. The first one becomes the origin of `stage_spans_ms`."""
        self._threads.make_current()
        event = self._closing.enter_context(closing(Event(self._stream.cuda, timing=True)))
        self._synchronize()
        begin_ns = time.perf_counter_ns()
        self._stream.record(event)
        while not event.has_passed:  # a wait that sleeps would add the time of waking up
            pass
        moment_ns = (begin_ns + time.perf_counter_ns()) // 2
        self._clock.origin = self._clock.origin or event
        return event, moment_ns

    @property
    def stage_spans_ms(self) -> Mapping[str, tuple[float, float]]:
        """Begin and end of the stages that were read last, ms of the GPU after the first `mark`."""
        return self._clock.spans_ms

    def prefetch(self, image: Image) -> None:
        self._image.stage(image)

    def _start(self, image: Image, frames: Sequence[TargetFrame]) -> None:
        self._settle()
        self._adopt_thread()
        self._begin_s = time.perf_counter()
        for frame in frames:
            self._in_place.discard(frame.target)
            self._apart.discard(frame.target)
        views = [
            (frame, view)
            for frame in frames
            for view in frame.look.views
            if frame.prompt is None and frame.look.plan.slots
        ]
        for first in range(0, len(views), MAX_VIEWS):
            self._settle()
            self._launch(image, views[first : first + MAX_VIEWS])
        for frame in frames:
            if not frame.look.plan.slots or frame.prompt is not None:
                self._look_without_memory(image, frame)

    def _wait(self, frame: TargetFrame) -> None:
        self._settle()

    def _settle(self) -> None:
        """Wait for the launched work, and read its answers. A frame waits here only."""
        if not self._launched:
            return
        launched, self._launched = self._launched, []
        self._stream.record(self._answered)
        self._answered.wait()
        self._clock.read()
        for frame, view, place in launched:
            frame.found.append(frame.read(view, self._tensors.answers_of(place)))
            if frame.look.is_search:
                frame.seconds["search"] = time.perf_counter() - self._begin_s
            else:
                frame.seconds |= self._clock.seconds

    def _launch(self, image: Image, views: Sequence[tuple[TargetFrame, View]]) -> None:
        """Enqueue looks that attend to memory, at most `MAX_VIEWS` views, without a wait between them."""
        groups = [(view, [one for one, _ in same]) for view, same in groupby(views, key=itemgetter(1))]
        is_there = self._has_features(image, groups[0][0])
        self._clock.is_on = False
        if len(groups) > is_there:
            if not all(frame.look.is_search for frame, _ in views):
                self._clock.begin()
            self._prepare(image, [view for view, _ in groups[is_there:]])
        is_timed = self._clock.is_on
        for number, (view, frames) in enumerate(groups, start=-is_there):
            if number >= 0:
                self._keep_features()
                self._present = Features(weakref.ref(image), view, {})
            if number > 0:  # the first one is prepared
                self._preprocess(self._stream, number)
            for frame in frames:
                self._run_tracked(frame, view, encodes=number >= 0 and frame is frames[0])
        self._clock.is_on = is_timed

    def _run_tracked(self, frame: TargetFrame, view: View, encodes: bool) -> None:
        """Enqueue one view of a look, from the network's input (``encodes``) or its features on."""
        tensors, target, place = self._tensors, frame.target, frame.target
        sections, last = self._network.lanes[target], self._launched[-1][0] if self._launched else None
        if last is not frame:
            plan = tensors.plans[target]
            tensors.layout.write_plan(frame.look.plan, plan, target * self.spec.slots)
        if frame.look.is_search:
            if last is not frame:
                for step in sections.gather:
                    step()
            self._network.run_tracked(encodes)
            place = self.max_targets + len(self._launched)
            tensors.copy_answers_out(self._stream, place)
        else:
            (sections.track if encodes else sections.again).run()
            self._in_place.add(target)
            self._clock.is_on = False  # only the first one is timed
        self._launched.append((frame, view, place))

    def _look_without_memory(self, image: Image, frame: TargetFrame) -> None:
        """Compute a look without memory: with a prompt, or with nothing."""
        self._settle()
        self._clock.is_on = False
        if not self._has_features(image, frame.view):
            self._clock.begin()
            self._keep_features()
            self._prepare(image, [frame.view])
            self._network.encode_image()
            self._present = Features(weakref.ref(image), frame.view, {})
        self._network.encode_prompt(frame.prompt)
        self._network.decode(frame.prompt, frame.target)
        self._in_place.add(frame.target)
        self._launched.append((frame, frame.view, frame.target))
        self._settle()  # the prompt's numbers are staged in one place

    def _has_features(self, image: Image, view: View) -> bool:
        return self._present is not None and self._present.are_of(image, view)

    def _keep_features(self) -> None:
        """Other features are computed now: copy those that targets are still to be remembered by."""
        for target in sorted(self._in_place):
            if target in self._frames and self._frames[target].can_be_remembered:
                self._tensors.keep_features(self._stream, target)
                self._apart.add(target)
        self._in_place.clear()

    def _prepare(self, image: Image, views: Sequence[View]) -> None:
        """Bring an image to the GPU with descriptions of these views; make network input of the first."""
        parameters = self._tensors.parameters
        parts = self._image.prepare(image, views, parameters.view(VIEWS))
        nbytes = (len(views) - 1) * VIEW_BYTES + PREPROCESS_PARAMS.itemsize
        with self._clock.time("preprocess", self._images):
            parameters.upload(self._images, VIEWS, nbytes)
            self._image.upload(self._images, image, parts)
            self._preprocess(self._images, 0)
        self._images.record(self._image_ready)
        self._stream.wait(self._image_ready)

    def _preprocess(self, stream: Stream, number: int) -> None:
        """Make network input of a view that was prepared."""
        description = self._tensors.parameters.pointer(VIEWS, number * VIEW_BYTES)
        self._image.preprocess(stream, description, self._tensors.at("image"))

    def _remember_all(self, chosen: Sequence[Chosen]) -> None:
        self._threads.make_current()
        # First the targets whose features are in place, because those of the others take that place.
        for one in sorted(chosen, key=lambda one: one.frame.target in self._apart):
            if one.frame.target in self._apart:
                self._tensors.restore_features(self._stream, one.frame.target)
                self._present = None
            self._remember(one)
            self._clock.is_on = False  # only the first one is timed
        self._in_place.clear()
        self._apart.clear()

    def _remember(self, chosen: Chosen) -> None:
        frame, row, slot, present = chosen
        target, is_prompted = frame.target, frame.prompt is not None
        self._tensors.decisions[target] = row, target * self.spec.slots + slot, present, is_prompted
        if is_prompted:
            self._network.keep_prompted(target)
        else:
            self._network.lanes[target].keep.run()

    def _mask(self, frame: TargetFrame, row: int) -> NDArray[np.uint8]:
        self._threads.make_current()
        return self._masks.make(frame.target, row, frame.view, *frame.size)

    def _adopt_thread(self) -> None:
        if self._threads.adopt(self._network):
            # The network ran on arbitrary data: earlier features and answers are gone.
            self._present = None
            for target in self._in_place & self._frames.keys():
                self._frames[target].can_be_remembered = False
            self._in_place.clear()

    def _synchronize(self) -> None:
        for stream in (self._stream, self._images):
            stream.synchronize()

    def _close(self) -> None:
        with suppress(CudaError):  # a lost GPU can't be waited for, and nothing runs on it
            self._threads.make_current()
            self._synchronize()
        self._closing.close()


class _Threads:
    """Makes the GPU current in each thread that uses the pipeline. Thread identities are reused, so each
    thread keeps a mark of its own."""

    def __init__(self, cuda: Cuda, index: int) -> None:
        self._cuda, self._index = cuda, index
        self._here = threading.local()
        self._here.adopted = self._here.current = True

    def adopt(self, network: DeviceNetwork) -> bool:
        """Make ready for frames in a thread that did not open the pipeline: what the libraries prepare per
        thread (onnxruntime its captured graphs) is prepared now, not in the middle of a frame. Returns
        whether the network ran for it."""
        if getattr(self._here, "adopted", False):
            return False
        self.make_current()
        network.warm_up()
        self._here.adopted = True
        return True

    def make_current(self) -> None:
        """Make the device's context this thread's."""
        if not getattr(self._here, "current", False):
            self._cuda.make_current(self._index)
            self._here.current = True
