"""The camera's image on the GPU: its bytes go up, the preprocessing kernel makes network input of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.arena import aligned
from efftam_ros.runtime.cuda.kernel_set import KernelSet
from efftam_ros.runtime.cuda.kernel_table import PREPROCESS_PARAMS
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.module import Launch
from efftam_ros.runtime.cuda.preprocess_params import PreprocessParameters
from efftam_ros.runtime.cuda.stream import Stream

VIEW_BYTES = aligned(PREPROCESS_PARAMS.itemsize)
"""Between the descriptions of two views."""
STAGED_MARGIN = 1.3
"""Factor on the sides of the last window for the rows that are staged: the target moves on."""
Rows = tuple[slice, ...]


@dataclass(frozen=True)
class _Staged:
    """Rows of an image that lie in a pinned buffer; ``pixels`` are the image's own."""

    index: int
    pixels: NDArray[np.uint8]
    rows: Rows

    def holds(self, image: Image, rows: Rows) -> bool:
        return self.pixels is image.rows and all(
            any(have.start <= part.start and part.stop <= have.stop for have in self.rows) for part in rows
        )


class DeviceImage:
    """Two pinned buffers and device memory for one image, allocated for the first image and anew only when a
    larger one comes.

    While the frame in work reads one buffer, the next image can be staged in the other. With
    ``zero_copy`` the kernel reads the pinned bytes themselves. `stage` may be called from any thread,
    everything else from the pipeline's, and `prepare` only when nothing reads the image before it.
    """

    def __init__(
        self,
        cuda: Cuda,
        kernels: KernelSet,
        parameters: PreprocessParameters,
        side: int,
        zero_copy: bool,
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
            view = self._last_view
            if view != View.full(image.width, image.height, view.side):
                view = _grown(view, STAGED_MARGIN)
            rows = self._parameters.needed_rows(image, view)
            index = 1 - self._using
            self._staged = None
            self._copy(image, rows, index)
            self._staged = _Staged(index, image.rows, rows)

    def prepare(self, image: Image, views: Sequence[View], descriptions: NDArray[np.uint8]) -> Rows:
        """Write the descriptions of image and views, `VIEW_BYTES` apart, and see that the rows that the views
        read lie in pinned memory. Returns these rows. Raises InputError as `encodings.check_image` does."""
        for index, view in enumerate(views):
            description = self._parameters.record(image, view)
            start = index * VIEW_BYTES
            descriptions[start : start + description.nbytes] = np.frombuffer(description.tobytes(), np.uint8)
        rows = merged(row for view in views for row in self._parameters.needed_rows(image, view))
        with self._lock:
            self._fit(image.rows.size)
            staged, self._last_view = self._staged, views[0]
            if staged is not None and staged.holds(image, rows):
                self._using, self._staged = staged.index, None
            else:
                self._copy(image, rows, self._using)
        return rows

    def upload(self, stream: Stream, image: Image, rows: Rows) -> None:
        """Copy the prepared rows to the device."""
        step = image.rows.shape[1]
        if self._device is not None:
            for part in rows:
                first, nbytes = part.start * step, (part.stop - part.start) * step
                stream.copy_in(self._device.pointer + first, self._hosts[self._using], nbytes, first)

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
        self._launches = {}

    def _fit(self, nbytes: int) -> None:
        if self._hosts and self._hosts[0].nbytes >= nbytes:
            return
        self._free()
        for _ in range(2):
            self._hosts.append(HostBuffer(self._cuda, nbytes))
        if not self._shared:
            self._device = DeviceBuffer(self._cuda, nbytes)

    def _copy(self, image: Image, rows: Rows, index: int) -> None:
        pinned = self._hosts[index].array[: image.rows.size].reshape(image.rows.shape)
        for part in rows:
            pinned[part] = image.rows[part]


def _grown(view: View, factor: float) -> View:
    """A view with the same middle and pixels per pixel ``factor`` times as coarse."""
    width, height = view.extent
    return View(
        view.x - width * (factor - 1) / 2,
        view.y - height * (factor - 1) / 2,
        view.scale_x / factor,
        view.scale_y / factor,
        view.side,
    )


def merged(rows: Iterable[slice]) -> Rows:
    """The same rows in as few slices as possible, in order."""
    found: list[slice] = []
    for part in sorted(rows, key=lambda row: (row.start, row.stop)):
        if found and part.start <= found[-1].stop:
            found[-1] = slice(found[-1].start, max(found[-1].stop, part.stop))
        else:
            found.append(part)
    return tuple(found)
