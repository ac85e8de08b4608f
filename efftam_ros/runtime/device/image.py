"""The camera's image on the GPU: its bytes go up, the preprocessing kernel makes network input of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

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
Rows = tuple[slice, ...]


class DeviceImage:
    """Pinned and device memory for one image, allocated for the first one and anew only when a larger one
    comes.

    On a GPU that shares the host's memory the kernel reads the pinned bytes themselves.
    """

    def __init__(
        self,
        cuda: Cuda,
        stream: Stream,
        kernels: KernelSet,
        parameters: PreprocessParameters,
        side: int,
        shared_memory: bool,
    ) -> None:
        self._cuda, self._stream, self._kernels = cuda, stream, kernels
        self._parameters, self._side = parameters, side
        self._shared = shared_memory
        self._host: HostBuffer | None = None
        self._device: DeviceBuffer | None = None
        self._launches: dict[int, Launch] = {}

    @property
    def device_bytes(self) -> int:
        return self._device.nbytes if self._device is not None else 0

    def prepare(self, image: Image, views: Sequence[View], record: HostBuffer, offset: int) -> Rows:
        """Describe image and views from ``offset`` of ``record`` on, `VIEW_BYTES` apart, and copy the rows
        that the views read into pinned memory. Returns these rows. Raises InputError as
        `encodings.check_image` does."""
        for index, view in enumerate(views):
            description = self._parameters.record(image, view)
            record.view(np.uint8, (description.nbytes,), offset + index * VIEW_BYTES)[:] = np.frombuffer(
                description.tobytes(), np.uint8
            )
        rows = merged(row for view in views for row in self._parameters.needed_rows(image, view))
        self._fit(image.rows.size)
        assert self._host is not None
        pinned = self._host.view(np.uint8, image.rows.shape)
        for part in rows:
            pinned[part] = image.rows[part]
        return rows

    def upload(self, image: Image, rows: Rows) -> None:
        """Copy the prepared rows to the device."""
        assert self._host is not None
        step = image.rows.shape[1]
        if self._device is not None:
            for part in rows:
                first, nbytes = part.start * step, (part.stop - part.start) * step
                self._stream.copy_in(self._device.pointer + first, self._host, nbytes, first)

    def preprocess(self, description: int, out: int) -> None:
        """Make network input (float32 [3, S, S] at ``out``) of one view. ``description``: device address of
        what `prepare` wrote for it."""
        assert self._host is not None
        launch = self._launches.get(description)
        if launch is None:
            pixels = self._host.device_pointer if self._device is None else self._device.pointer
            launch = self._launches[description] = self._kernels.launch(
                "preprocess", (self._side, self._side), description, pixels, out
            )
        launch.run(self._stream)

    def free(self) -> None:
        for buffer in (self._device, self._host):
            if buffer is not None:
                buffer.free()
        self._device = self._host = None
        self._launches = {}

    def _fit(self, nbytes: int) -> None:
        if self._host is not None and self._host.nbytes >= nbytes:
            return
        if self._host is not None:
            self._stream.synchronize()  # an abandoned frame may still be reading it
            self.free()
        self._host = HostBuffer(self._cuda, nbytes)
        if not self._shared:
            self._device = DeviceBuffer(self._cuda, nbytes)


def merged(rows: Iterable[slice]) -> Rows:
    """The same rows in as few slices as possible, in order."""
    found: list[slice] = []
    for part in sorted(rows, key=lambda row: (row.start, row.stop)):
        if found and part.start <= found[-1].stop:
            found[-1] = slice(found[-1].start, max(found[-1].stop, part.stop))
        else:
            found.append(part)
    return tuple(found)
