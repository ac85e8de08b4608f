"""The pipeline for back ends on a GPU. In each image it waits for the GPU once, and allocates nothing."""

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
    """A `Pipeline` on one GPU, with graphs that a `GraphOpener` opened.

    Only scores and boxes are copied to the host, and masks when they are requested. The host waits once for
    all looks of a call, when the first candidates are requested.

    There are two streams. On one, an image is copied to the GPU and preprocessed, while the memory encoder
    may still compute the image before. The network runs on the other stream, which waits for the
    preprocessing by an event. The work of a target in a tracked image has two sections: from the memory plan
    to the answers, and from the choice of a candidate to the memory. Each is launched as one CUDA graph if
    the library allows it.

    All targets share one buffer for features. A view that several targets look at is encoded once: only the
    section of the first target contains the image encoder. Before another view is encoded, features that the
    memory encoder will still need are copied to a buffer of their target.
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
        """Open the graphs, allocate all memory and capture the sections.

        Args:
            bundle: The network.
            cuda: The CUDA driver. The pipeline closes it.
            facts: Properties of the GPU.
            stream: The stream on which the network runs. The pipeline closes it.
            opener: Opens the graphs. The pipeline closes it.
            zero_copy: Whether kernels read images from pinned host memory, without a copy to the GPU.
            max_targets: Largest number of targets.

        Raises:
            BackendError: A graph can't run on the GPU.
            CudaError: There is too little memory, or no kernel for this GPU.
            InputError: A file of the bundle or of the kernels is damaged.
        """
        super().__init__(bundle.spec, max_targets)
        self._threads = _Threads(cuda, facts.index)
        self._stream, self._opener = stream, opener
        self._images = stream
        # Launched work that the host has not waited for: look, view, and index of its answers on the host.
        self._launched: list[tuple[TargetFrame, View, int]] = []
        self._begin_s = 0.0  # time of `time.perf_counter` at which the last call of `look` began
        # The image and view of the features in the shared buffer; None: they can't be used.
        self._present: Features | None = None
        self._in_place: set[int] = set()  # targets whose last look used the features in the shared buffer
        self._apart: set[int] = set()  # targets whose features were copied to their own buffer
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
        """How each graph and each section of a tracked frame is launched.

        By name: "cuda graph", or "plain launches" with the reason.
        """
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
        """Memory of the GPU that the pipeline uses, as far as it is known, bytes."""
        return sum(one.device_bytes for one in (self._tensors, self._image, self._masks, self._opener))

    @property
    def made_of(self) -> str:
        """Versions of the library for graphs and hashes of its engines; see `GraphOpener.made_of`."""
        return self._opener.made_of

    def tensor(self, name: str, target: int = 0) -> NDArray[np.float32]:
        """Wait for the GPU, and return a copy of a tensor by a name that `verify.Inspected.tensor` lists."""
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
        """Number of frames from one frame that is timed to the next; 1: every frame is timed.

        `Answers.stage_seconds` contains the times.
        """
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
        """Record an event, and return it with the time at which the GPU passed it.

        The time is that of `time.perf_counter_ns`, with an error of some microseconds. The call waits for the
        GPU. The event of the first call becomes the origin of `stage_spans_ms`.
        """
        self._threads.make_current()
        event = self._closing.enter_context(closing(Event(self._stream.cuda, timing=True)))
        self._synchronize()
        begin_ns = time.perf_counter_ns()
        self._stream.record(event)
        # The event is polled, because `Event.wait` sleeps, and waking up would add to the measured time.
        while not event.has_passed:
            pass
        moment_ns = (begin_ns + time.perf_counter_ns()) // 2
        self._clock.origin = self._clock.origin or event
        return event, moment_ns

    @property
    def stage_spans_ms(self) -> Mapping[str, tuple[float, float]]:
        """By stage, begin and end of its latest timed run, ms after the event of the first `mark`."""
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
        """Wait for the launched looks, and store their candidates.

        A tracked frame waits for the GPU only here, and when a mask is requested.
        """
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
        """Enqueue looks that use the memory, at most `MAX_VIEWS` views, without waiting between them."""
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
            if number > 0:  # `_prepare` has made the network input of view 0
                self._preprocess(self._stream, number)
            for frame in frames:
                self._run_tracked(frame, view, encodes=number >= 0 and frame is frames[0])
        self._clock.is_on = is_timed

    def _run_tracked(self, frame: TargetFrame, view: View, encodes: bool) -> None:
        """Enqueue one view of a look.

        With ``encodes`` the image encoder runs first. Without, the features in the shared buffer are used.
        """
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
            self._clock.is_on = False  # of several targets only the first is timed
        self._launched.append((frame, view, place))

    def _look_without_memory(self, image: Image, frame: TargetFrame) -> None:
        """Compute a look that uses no memory, with a prompt or without one."""
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
        self._settle()  # waits, because the next prompt overwrites the pinned memory of this one

    def _has_features(self, image: Image, view: View) -> bool:
        return self._present is not None and self._present.are_of(image, view)

    def _keep_features(self) -> None:
        """Copy the features in the shared buffer to the buffers of the targets that may still need them.

        A target needs the features of its last look until a candidate is stored in the memory. This is
        called before other features overwrite the shared buffer.
        """
        for target in sorted(self._in_place):
            if target in self._frames and self._frames[target].can_be_remembered:
                self._tensors.keep_features(self._stream, target)
                self._apart.add(target)
        self._in_place.clear()

    def _prepare(self, image: Image, views: Sequence[View]) -> None:
        """Copy an image and the parameters of its views to the GPU, and make the input of the first view."""
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
        """Make the network input of view ``number`` of those that were given to `_prepare`."""
        description = self._tensors.parameters.pointer(VIEWS, number * VIEW_BYTES)
        self._image.preprocess(stream, description, self._tensors.at("image"))

    def _remember_all(self, chosen: Sequence[Chosen]) -> None:
        self._threads.make_current()
        # Targets whose features are in the shared buffer come first, because those of the other targets are
        # copied back into this buffer.
        for one in sorted(chosen, key=lambda one: one.frame.target in self._apart):
            if one.frame.target in self._apart:
                self._tensors.restore_features(self._stream, one.frame.target)
                self._present = None
            self._remember(one)
            self._clock.is_on = False  # of several targets only the first is timed
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
            # The warm-up has overwritten the features and answers of earlier frames.
            self._present = None
            for target in self._in_place & self._frames.keys():
                self._frames[target].can_be_remembered = False
            self._in_place.clear()

    def _synchronize(self) -> None:
        for stream in (self._stream, self._images):
            stream.synchronize()

    def _close(self) -> None:
        with suppress(CudaError):  # raised if the GPU failed, and then there is no work to wait for
            self._threads.make_current()
            self._synchronize()
        self._closing.close()


class _Threads:
    """Prepares each thread that uses the pipeline.

    Which threads are prepared is stored in thread-local data, because identifiers of ended threads are used
    again for new ones.
    """

    def __init__(self, cuda: Cuda, index: int) -> None:
        self._cuda, self._index = cuda, index
        self._here = threading.local()
        self._here.adopted = self._here.current = True

    def adopt(self, network: DeviceNetwork) -> bool:
        """Prepare this thread for computing frames, unless it is prepared already.

        The network runs, so that libraries prepare what they have for each thread separately, such as
        onnxruntime's CUDA graphs. Without this they would do so in the middle of a frame. Returns whether the
        network ran.
        """
        if getattr(self._here, "adopted", False):
            return False
        self.make_current()
        network.warm_up()
        self._here.adopted = True
        return True

    def make_current(self) -> None:
        """Make the CUDA context of the GPU current in this thread, as CUDA requires for each thread."""
        if not getattr(self._here, "current", False):
            self._cuda.make_current(self._index)
            self._here.current = True
