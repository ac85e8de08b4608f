"""The pipeline whose tensors stay on the GPU: one stream, one wait per frame, nothing allocated per frame."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image, MemoryPlan
from efftam_ros.runtime.bundle import NEEDED, Bundle
from efftam_ros.runtime.cuda.api import Cuda, CudaError, DeviceFacts
from efftam_ros.runtime.cuda.kernel_table import PREPROCESS_PARAMS, VIEW_BYTES
from efftam_ros.runtime.cuda.memory import HostBuffer
from efftam_ros.runtime.cuda.module import KernelSet
from efftam_ros.runtime.cuda.preprocess_params import PreprocessParameters
from efftam_ros.runtime.cuda.stream import Event, Stream
from efftam_ros.runtime.device.image import DeviceImage, MaskMaker
from efftam_ros.runtime.device.memory import RINGS
from efftam_ros.runtime.device.network import DeviceNetwork
from efftam_ros.runtime.device.section import StageClock
from efftam_ros.runtime.device.tensors import PREPROCESS, SEARCH, SEARCH_VIEWS, DeviceTensors
from efftam_ros.runtime.frame_state import Decoded, FramePipeline
from efftam_ros.runtime.preprocess import EncodedPrompt

if TYPE_CHECKING:
    from efftam_ros.runtime.device.graph import GraphOpener


STAGES = ("preprocess", *NEEDED)


class DevicePipeline(FramePipeline):
    """The `Pipeline` contract on one GPU, with the graphs run by a `GraphOpener`.

    The host sees scores and boxes, and masks where somebody wants them; `decode` is the one place of a frame
    where it waits. Two non-blocking streams: an image's bytes go up and are preprocessed on one, beside the
    memory encoder of the frame before; the network runs on the other, behind an event. A tracked frame has
    two sections, each launched as one CUDA graph where the library allows it: from the memory plan to the
    answers, and from the choice to the memory.

    Several lanes that look at one image in the same view share its features: the second lane's section leaves
    out the image encoder. Lanes may be launched one behind the other; the first `decode` then waits for all
    of them. In the full view the image announced by `prefetch` is encoded behind the memory encoder.
    """

    is_asynchronous = True

    def __init__(
        self,
        bundle: Bundle,
        cuda: Cuda,
        facts: DeviceFacts,
        stream: Stream,
        opener: GraphOpener,
        zero_copy: bool = False,
        lanes: int = 1,
    ) -> None:
        """Takes over ``stream`` and ``opener`` and closes them. ``zero_copy``: kernels read images from
        pinned host memory. Raises BackendError (a graph that can't run on the GPU), CudaError (too little
        memory, no kernel for this GPU) and InputError."""
        self._threads = _Threads(cuda, facts.index)
        self._stream, self._opener = stream, opener
        self._at = _Progress([0] * lanes)
        self._images = stream
        self._closing = ExitStack()
        self._closing.callback(cuda.close)
        self._closing.callback(stream.close)
        self._closing.callback(opener.close)
        owned = self._closing.enter_context
        try:
            self._images = owned(closing(Stream(cuda)))
            self._tensors = DeviceTensors(bundle, cuda, self._closing, lanes)
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
        # The fixed form of memory attention has one place per temporal row.
        super().__init__(replace(bundle.spec, max_prompts=1), lanes)

    @property
    def launch(self) -> Mapping[str, str]:
        """How each graph of a tracked frame is started (`Binding.launch`), and how its sections are."""
        network, first = self._network, self._network.lanes[0]
        sections = {"plan to answers": first.track.launch, "choice to memory": first.keep.launch}
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

    def tensor(self, name: str) -> NDArray[np.float32]:
        """See `verify.Inspected`; waits for the GPU."""
        self._threads.make_current()
        shape = self._tensors.shapes[name]
        host = HostBuffer(self._stream.cuda, 4 * math.prod(shape))
        try:
            self._end_all()
            self._stream.copy_out(host, self._tensors.at(name), 4 * math.prod(shape))
            self._stream.synchronize()
            whole = host.view(np.float32, shape).copy()
            return np.split(whole, self.lanes)[self._lane] if name in RINGS else whole
        finally:
            host.free()

    @property
    def stage_interval(self) -> int:
        """Of so many frames the first is timed for ``stage_seconds``; 1: every frame."""
        return self._clock.interval

    @stage_interval.setter
    def stage_interval(self, frames: int) -> None:
        self._clock.interval = frames

    def prefetch(self, image: Image) -> None:
        self._image.stage(image)
        self._at.announced = image

    def _encode(self, image: Image, view: View) -> None:
        if self._at.announced is image:
            self._at.announced = None
        is_ahead = self._begin(image, view)
        self._clock.begin()
        if is_ahead:
            self._network.take_ahead()
        else:
            self._prepare(image, view)
        self._at.launched += 1
        self._at.has_features = is_ahead

    def _prepare(self, image: Image, view: View) -> None:
        """Make network input of the image."""
        parameters = self._tensors.parameters
        parts = self._image.prepare(image, [view], parameters.view(PREPROCESS))
        with self._clock.time("preprocess", self._images):
            parameters.upload(self._images, PREPROCESS)
            self._image.upload(self._images, image, parts)
            self._preprocess(self._images, parameters.pointer(PREPROCESS))
        self._images.record(self._image_ready)
        self._stream.wait(self._image_ready)

    def _reuse(self, owner: FramePipeline) -> None:
        self._threads.adopt(self._network)
        self._clock.is_on = False

    def _condition(self, prompt: EncodedPrompt | None) -> None:
        if any(launch > self._at.awaited for launch in self._at.launches):
            self._end_all()  # of another lane: its prompt is still read
        if not self._at.has_features:
            self._network.encode_image()
            self._at.has_features = True
        self._network.encode_prompt(prompt)
        if prompt is None:
            self._network.decode(None, self._lane)
            self._at.launch(self._lane)

    def _attend(self, plan: MemoryPlan) -> None:
        # Launched here, so that the host follows the target's points while the GPU works.
        self._write_plan(plan)
        sections = self._network.lanes[self._lane]
        (sections.again if self._at.has_features else sections.track).run()
        self._at.has_features = True
        self._at.launch(self._lane)

    def _decode(self, prompt: EncodedPrompt | None) -> Decoded:
        if prompt is not None:
            self._network.decode(prompt, self._lane)
            self._at.launch(self._lane)
        if self._at.launches[self._lane] > self._at.awaited:
            self._await_answers()
            self._clock.read()
        self.stage_seconds |= self._clock.seconds
        return self._tensors.answers_of(self._lane)

    def _search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> Iterator[Decoded]:
        self._begin()
        tensors, stream = self._tensors, self._stream
        for first in range(0, len(views), SEARCH_VIEWS):
            some = views[first : first + SEARCH_VIEWS]
            parts = self._image.prepare(image, some, tensors.parameters.view(SEARCH))
            nbytes = (len(some) - 1) * VIEW_BYTES + PREPROCESS_PARAMS.itemsize
            tensors.parameters.upload(stream, SEARCH, nbytes)
            self._image.upload(stream, image, parts)
            self._write_plan(plan)
            self._at.launched += 1
            for step in self._network.lanes[self._lane].gather:
                step()
            for index in range(len(some)):
                self._preprocess(stream, tensors.parameters.pointer(SEARCH, index * VIEW_BYTES))
                self._network.run_tracked()
                tensors.copy_answers_out(stream, index)
            self._await_answers()
            for index in range(len(some)):
                yield tensors.answers_of(index)
        self.stage_seconds |= self._clock.seconds

    def _remember(self, row: int, slot: int, present: bool) -> None:
        prompted = self._frame.prompt is not None
        self._tensors.decisions[self._lane] = row, self._first_slot + slot, present, prompted
        if prompted:
            self._network.keep_prompted(self._lane)
        else:
            self._network.lanes[self._lane].keep.run()
        # The image that waits is encoded where its view is known: the host's work between the frames is then
        # beside it.
        image, self._at.announced = self._at.announced, None
        view, size = self._frame.view, self._frame.image_size
        if image is None or view is None or self.lanes > 1 or (image.width, image.height) != size:
            return
        with suppress(InputError):  # its own frame tells
            if view.is_full(*size):
                self._prepare(image, view)
                self._network.encode_ahead()
                self._at.ahead = image, view

    def _mask(self, row: int, view: View, width: int, height: int) -> NDArray[np.uint8]:
        self._threads.make_current()
        return self._masks.make(self._lane, row, view, width, height)

    def _close(self) -> None:
        with suppress(CudaError):  # a lost GPU can't be waited for, and nothing runs on it
            self._threads.make_current()
            self._end_all()
        self._closing.close()

    @property
    def _first_slot(self) -> int:
        """Of this lane, in the ring of all."""
        return self._lane * self.spec.slots

    def _write_plan(self, plan: MemoryPlan) -> None:
        self._tensors.layout.write_plan(plan, self._tensors.plans[self._lane], self._first_slot)

    def _begin(self, image: Image | None = None, view: View | None = None) -> bool:
        """A frame may come in another thread, and one that was encoded and not decoded may still read what
        the next one writes. Returns whether this view of this image was encoded ahead."""
        self._threads.adopt(self._network)
        ahead, self._at.ahead = self._at.ahead, None
        is_ahead = ahead is not None and ahead[0] is image and ahead[1] == view
        if self._at.launched > self._at.awaited or (ahead is not None and not is_ahead):
            self._end_all()
        return is_ahead

    def _preprocess(self, stream: Stream, description: int) -> None:
        self._image.preprocess(stream, description, self._tensors.at("image"))

    def _await_answers(self) -> None:
        self._stream.record(self._answered)
        self._answered.wait()
        self._at.awaited = self._at.launched

    def _end_all(self) -> None:
        for stream in (self._stream, self._images):
            stream.synchronize()
        self._at.awaited = self._at.launched


@dataclass
class _Progress:
    """``launches``: by lane the last of its decoder; ``launched`` so far, and up to which the host has
    ``awaited``; ``has_features`` of the frame's image; ``announced``: the image that is next; ``ahead``: the
    one that was encoded behind the frame before."""

    launches: list[int]
    launched: int = 0
    awaited: int = 0
    has_features: bool = False
    announced: Image | None = None
    ahead: tuple[Image, View] | None = None

    def launch(self, lane: int) -> None:
        self.launched += 1
        self.launches[lane] = self.launched


class _Threads:
    """The GPU in each thread that uses the pipeline. Identities of threads are used again, so that each
    thread keeps a mark of its own."""

    def __init__(self, cuda: Cuda, index: int) -> None:
        self._cuda, self._index = cuda, index
        self._here = threading.local()
        self._here.adopted = self._here.current = True

    def adopt(self, network: DeviceNetwork) -> None:
        """Make ready for frames in a thread that did not open the pipeline: what the libraries prepare per
        thread (onnxruntime its captured graphs) is prepared now, not in the middle of a frame."""
        if not getattr(self._here, "adopted", False):
            self.make_current()
            network.warm_up()
            self._here.adopted = True

    def make_current(self) -> None:
        """Make the device's context this thread's."""
        if not getattr(self._here, "current", False):
            self._cuda.make_current(self._index)
            self._here.current = True
