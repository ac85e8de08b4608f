"""The camera's image on the GPU: its bytes go up, a kernel makes network input of them, a mask comes back."""

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
"""Factor on the sides of the last window for the part that is staged: the target moves on."""
NARROW = 0.75
"""Share of a row up to which its bytes are copied apart. Wider parts go as whole rows, in one piece."""
Parts = tuple[Part, ...]


@dataclass(frozen=True)
class _Staged:
    """Parts of an image that lie in a pinned buffer; ``pixels`` are the image's own."""

    index: int
    pixels: NDArray[np.uint8]
    parts: Parts

    def holds(self, image: Image, parts: Parts) -> bool:
        return self.pixels is image.rows and all(
            any(have.holds(part) for have in self.parts) for part in parts
        )


class DeviceImage:
    """Two pinned buffers and device memory for one image, allocated for the first image and anew only when a
    larger one comes.

    While the frame in work reads one buffer, the next image can be staged in the other. With
    ``zero_copy`` the kernel reads the pinned bytes themselves. `stage` may be called from any thread,
    everything else from the pipeline's, and `prepare` only when nothing reads the image before it.
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
        self._using = 0  # buffer of the frame in work
        self._staged: _Staged | None = None
        self._last_view: View | None = None
        self._lock = threading.Lock()

    @property
    def device_bytes(self) -> int:
        return self._device.nbytes if self._device is not None else 0

    def stage(self, image: Image) -> None:
        """Copy what the next frame will probably need of an image. Before the first image, and of an image
        that is larger or faulty, nothing is copied: `prepare` does it all."""
        with self._lock, suppress(InputError):
            if self._last_view is None or self._hosts[0].nbytes < image.rows.size:
                return
            # The next view is not known yet: the last one, with room for the target's way.
            view = self._last_view
            if not view.is_full(image.width, image.height):
                view = _grown(view, STAGED_MARGIN)
            parts = self._needed(image, [view])
            index = 1 - self._using
            self._copy(image, parts, index)
            self._staged = _Staged(index, image.rows, parts)

    def prepare(self, image: Image, views: Sequence[View], descriptions: NDArray[np.uint8]) -> Parts:
        """Write the descriptions of image and views, `VIEW_BYTES` apart, and see that what the views read
        lies in pinned memory. Returns these parts. Raises InputError as `pixels.check_image` does."""
        for index, view in enumerate(views):
            description = self._parameters.record(image, view)
            start = index * VIEW_BYTES
            descriptions[start : start + description.nbytes] = np.frombuffer(description.tobytes(), np.uint8)
        parts = self._needed(image, views)
        with self._lock:
            self._fit(image.rows.size)
            staged, self._last_view = self._staged, views[0]
            # Copied while the frame before was in work, or now.
            if staged is not None and staged.holds(image, parts):
                self._using, self._staged = staged.index, None
            else:
                self._copy(image, parts, self._using)
        return parts

    def upload(self, stream: Stream, image: Image, parts: Parts) -> None:
        """Copy the prepared parts to the device."""
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
        """Make network input (float32 [3, S, S] at ``out``) of one view. ``description``: device address of
        what `prepare` wrote for it."""
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
        """No pending work may use the image."""
        with self._lock:
            self._free()

    def _free(self) -> None:
        for buffer in (self._device, *self._hosts):
            if buffer is not None:
                buffer.free()
        self._device, self._hosts, self._staged, self._last_view = None, [], None, None
        self._using, self._launches = 0, {}

    def _fit(self, nbytes: int) -> None:
        """Have room for an image. Raises CudaError with too little memory: there are no buffers then, as
        before the first image."""
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
        """Return what these views read of an image, in parts that are worth a copy of their own."""
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
    """Return a view with the same middle and pixels per pixel ``factor`` times as coarse."""
    width, height = view.extent
    return View(
        view.x - width * (factor - 1) / 2,
        view.y - height * (factor - 1) / 2,
        view.scale_x / factor,
        view.scale_y / factor,
        view.side,
    )


def merged(parts: Iterable[Part]) -> Parts:
    """Parts of different rows, in order, that hold all of ``parts``: those whose rows touch or overlap become
    one, as wide as all of them."""
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
    """Masks at image size, made on the images' stream: beside the memory encoder, not behind it, as the masks
    are there since the frame's answers are. Memory for one mask is allocated for the first one and anew for
    another size."""

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
        """Return the mask uint8 [height, width] of a row of the decoder's output for a lane. Raises
        CudaError."""
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
