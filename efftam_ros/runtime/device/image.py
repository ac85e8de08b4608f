"""Copies an image to the GPU, makes the network's input from it, and makes masks of its size."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.kernel_table import MASK, VIEW_BYTES
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.module import KernelSet, Launch
from efftam_ros.runtime.cuda.preprocess_params import Part, PreprocessParameters, mask_view
from efftam_ros.runtime.cuda.stream import Event, Stream

if TYPE_CHECKING:
    from efftam_ros.runtime.device.tensors import DeviceTensors

STAGED_MARGIN = 1.3
"""Factor by which the last window is enlarged to get the part of the next image that is copied in advance.

The window is enlarged because the target moves on.
"""
NARROW = 0.75
"""Largest width of a part of an image that is copied without the rest of its rows, as a share of a row.

Wider parts are copied as whole rows, because whole rows are one contiguous block of memory.
"""
Parts = tuple[Part, ...]


@dataclass(frozen=True)
class _Staged:
    """Parts of the next image that were copied to pinned memory in advance.

    Attributes:
        index: Number of the pinned buffer that contains them.
        pixels: The rows of the image, by which it is recognised.
        parts: The parts that were copied.
    """

    index: int
    pixels: NDArray[np.uint8]
    parts: Parts

    def holds(self, image: Image, parts: Parts) -> bool:
        return self.pixels is image.rows and all(
            any(have.holds(part) for have in self.parts) for part in parts
        )


class DeviceImage:
    """Copies images to the GPU: two pinned buffers on the host, and a buffer for one image on the GPU.

    All buffers are allocated for the first image, and again only for a larger image. While the GPU reads the
    current image from one pinned buffer, the next image can be copied to the other. With ``zero_copy`` the
    kernel reads the pinned buffer itself, and there is no buffer on the GPU.

    `stage` may be called from any thread, and all other methods from the pipeline's thread only. `prepare`
    may be called only when no pending work reads the previous image.
    """

    def __init__(
        self, cuda: Cuda, kernels: KernelSet, parameters: PreprocessParameters, side: int, zero_copy: bool
    ) -> None:
        self._cuda, self._kernels = cuda, kernels
        self._parameters, self._side = parameters, side
        self._shared = zero_copy
        self._hosts: list[HostBuffer] = []
        self._device: DeviceBuffer | None = None
        self._launches: dict[tuple[int, int], Launch] = {}
        self._using = 0  # number of the pinned buffer with the current image
        self._staged: _Staged | None = None
        self._last_view: View | None = None
        self._lock = threading.Lock()

    @property
    def device_bytes(self) -> int:
        return self._device.nbytes if self._device is not None else 0

    def stage(self, image: Image) -> None:
        """Copy to pinned memory, in advance, the part of the next image that will probably be needed.

        Nothing is copied before the first image, or if the next image is faulty or larger than the buffers.
        `prepare` then copies all that is needed.
        """
        with self._lock, suppress(InputError):
            if self._last_view is None or self._hosts[0].nbytes < image.rows.size:
                return
            # The view of the next image is not known yet. It will be near the last one.
            view = self._last_view
            if not view.is_full(image.width, image.height):
                view = _grown(view, STAGED_MARGIN)
            parts = self._needed(image, [view])
            index = 1 - self._using
            self._copy(image, parts, index)
            self._staged = _Staged(index, image.rows, parts)

    def prepare(self, image: Image, views: Sequence[View], descriptions: NDArray[np.uint8]) -> Parts:
        """Copy to pinned memory the parts of the image that these views need, and return these parts.

        The kernel's parameters for each view are written to ``descriptions``, one every `VIEW_BYTES` bytes.
        Raises InputError for an image that can't be used.
        """
        for index, view in enumerate(views):
            description = self._parameters.record(image, view)
            start = index * VIEW_BYTES
            descriptions[start : start + description.nbytes] = np.frombuffer(description.tobytes(), np.uint8)
        parts = self._needed(image, views)
        with self._lock:
            self._fit(image.rows.size)
            staged, self._last_view = self._staged, views[0]
            # `stage` may have copied the parts already.
            if staged is not None and staged.holds(image, parts):
                self._using, self._staged = staged.index, None
            else:
                self._copy(image, parts, self._using)
        return parts

    def upload(self, stream: Stream, image: Image, parts: Parts) -> None:
        """Enqueue copies of the prepared parts to the GPU, unless the kernel reads the pinned memory."""
        if self._device is None:
            return
        step, host, device = image.rows.shape[1], self._hosts[self._using], self._device.pointer
        for part in parts:
            if part.right - part.left == step:
                first = part.top * step
                stream.copy_in(device + first, host, part.nbytes, first)
            else:
                stream.copy_part_in(device, host, step, *part.slices)

    def preprocess(self, stream: Stream, description: int, out: int) -> None:
        """Enqueue the kernel that makes the network's input of one view.

        ``out``: device address of the input, float32 [3, S, S]. ``description``: device address of the
        parameters that `prepare` wrote for this view.
        """
        key = (self._using if self._device is None else 0, description)
        launch = self._launches.get(key)
        if launch is None:
            host = self._hosts[self._using]
            pixels = host.device_pointer if self._device is None else self._device.pointer
            launch = self._launches[key] = self._kernels.launch(
                "preprocess", (self._side, self._side), description, pixels, out
            )
        launch.run(stream)

    def free(self) -> None:
        """Free all buffers, which no pending work may use."""
        with self._lock:
            self._free()

    def _free(self) -> None:
        for buffer in (self._device, *self._hosts):
            if buffer is not None:
                buffer.free()
        self._device, self._hosts, self._staged, self._last_view = None, [], None, None
        self._using, self._launches = 0, {}

    def _fit(self, nbytes: int) -> None:
        """Allocate larger buffers if an image of ``nbytes`` does not fit.

        Raises CudaError if there is too little memory. After this error there are no buffers, as before the
        first image.
        """
        if self._hosts and self._hosts[0].nbytes >= nbytes:
            return
        self._free()
        try:
            for _ in range(2):
                self._hosts.append(HostBuffer(self._cuda, nbytes))
            if not self._shared:
                self._device = DeviceBuffer(self._cuda, nbytes)
        except BaseException:
            self._free()
            raise

    def _needed(self, image: Image, views: Sequence[View]) -> Parts:
        """Return the parts of an image that these views read, merged and widened so that copies are few."""
        step = image.rows.shape[1]
        parts = (part for view in views for part in self._parameters.needed_parts(image, view))
        return tuple(
            part if part.right - part.left <= NARROW * step else Part(part.top, part.bottom, 0, step)
            for part in merged(parts)
        )

    def _copy(self, image: Image, parts: Parts, index: int) -> None:
        pinned = self._hosts[index].array[: image.rows.size].reshape(image.rows.shape)
        for part in parts:
            pinned[part.slices] = image.rows[part.slices]


def _grown(view: View, factor: float) -> View:
    """Return a view with the same centre and ``factor`` times the width and height."""
    width, height = view.extent
    return View(
        view.x - width * (factor - 1) / 2,
        view.y - height * (factor - 1) / 2,
        view.scale_x / factor,
        view.scale_y / factor,
        view.side,
    )


def merged(parts: Iterable[Part]) -> Parts:
    """Return parts that cover all of ``parts`` and have no row in common, from top to bottom.

    Parts whose rows touch or overlap become one part, which is as wide as all of them together.
    """
    found: list[Part] = []
    for part in sorted(parts):
        last = found[-1] if found else None
        if last is not None and part.top <= last.bottom:
            found[-1] = Part(
                last.top,
                max(last.bottom, part.bottom),
                min(last.left, part.left),
                max(last.right, part.right),
            )
        else:
            found.append(part)
    return tuple(found)


class MaskMaker:
    """Makes masks of the image's size from the decoder's logits.

    Its work runs on the stream on which images are copied, not on that of the network, so that a mask need
    not wait until the memory encoder has ended. The logits are complete when `make` is called, because the
    host has already waited for the frame's answers. Memory is allocated for the first mask, and again for a
    mask of another size.
    """

    def __init__(self, cuda: Cuda, kernels: KernelSet, tensors: DeviceTensors, stream: Stream) -> None:
        self._cuda, self._kernels, self._tensors, self._stream = cuda, kernels, tensors, stream
        self._done = Event(cuda)
        self._size = (0, 0)
        self._device: DeviceBuffer | None = None
        self._host: HostBuffer | None = None

    @property
    def device_bytes(self) -> int:
        return 0 if self._device is None else self._device.nbytes

    def make(self, lane: int, row: int, view: View, width: int, height: int) -> NDArray[np.uint8]:
        """Return the mask of an image, uint8 [height, width], 255 on the target and 0 elsewhere.

        Args:
            lane: Number of the target.
            row: Row of the decoder's output.
            view: View for which the logits were computed.
            width: Width of the image, px.
            height: Height of the image, px.

        Raises:
            CudaError: There is too little memory, or the GPU failed.
        """
        device, host = self._fit(width, height)
        tensors, low = self._tensors, self._tensors.low
        record = mask_view(view, width, height, low)
        tensors.parameters.view(MASK)[:] = np.frombuffer(record.tobytes(), np.uint8)
        tensors.parameters.upload(self._stream, MASK)
        logits = tensors.of_lane("masks", lane) + 4 * row * low**2
        at = tensors.at(MASK), logits, device.pointer
        self._kernels.launch("mask_upsample", (width, height), *at).run(self._stream)
        self._stream.copy_out(host, device.pointer, width * height)
        self._stream.record(self._done)
        self._done.wait()
        return host.view(np.uint8, (height, width)).copy()

    def close(self) -> None:
        self._free()
        self._done.close()

    def _free(self) -> None:
        for buffer in (self._device, self._host):
            if buffer is not None:
                buffer.free()
        self._device = self._host = None

    def _fit(self, width: int, height: int) -> tuple[DeviceBuffer, HostBuffer]:
        if self._device is None or self._host is None or self._size != (width, height):
            self._free()
            self._size = (width, height)
            try:
                self._device = DeviceBuffer(self._cuda, width * height)
                self._host = HostBuffer(self._cuda, width * height)
            except BaseException:
                self._free()
                raise
        return self._device, self._host
