"""The camera's image on the GPU: its bytes go up, the preprocessing kernel makes network input of them."""

from __future__ import annotations

import numpy as np

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.kernel_set import KernelSet
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.module import Launch
from efftam_ros.runtime.cuda.preprocess_params import PreprocessParameters
from efftam_ros.runtime.cuda.stream import Stream


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
        picture: PreprocessParameters,
        side: int,
        shared_memory: bool,
    ) -> None:
        self._cuda, self._stream, self._kernels = cuda, stream, kernels
        self._picture, self._side = picture, side
        self._shared = shared_memory
        self._host: HostBuffer | None = None
        self._device: DeviceBuffer | None = None
        self._launch: Launch | None = None

    @property
    def device_bytes(self) -> int:
        return self._device.nbytes if self._device is not None else 0

    def prepare(self, image: Image, view: View, record: HostBuffer, offset: int) -> tuple[slice, ...]:
        """Describe image and view at ``offset`` of ``record``, and copy the rows that the view reads into
        pinned memory. Returns these rows. Raises InputError as `encodings.check_image` does."""
        description = self._picture.record(image, view)
        rows = self._picture.needed_rows(image, view)
        record.view(np.uint8, (description.nbytes,), offset)[:] = np.frombuffer(
            description.tobytes(), np.uint8
        )
        self._fit(image.rows.size)
        assert self._host is not None
        pinned = self._host.view(np.uint8, image.rows.shape)
        for part in rows:
            pinned[part] = image.rows[part]
        return rows

    def enqueue(self, image: Image, rows: tuple[slice, ...], description: int, out: int) -> None:
        """Copy the rows to the device and preprocess them to ``out`` (float32 [3, S, S]).

        ``description`` is the device address of what `prepare` wrote.
        """
        assert self._host is not None
        step = image.rows.shape[1]
        if self._device is not None:
            for part in rows:
                first, nbytes = part.start * step, (part.stop - part.start) * step
                self._stream.copy_in(self._device.pointer + first, self._host, nbytes, first)
        if self._launch is None:
            pixels = self._host.device_pointer if self._device is None else self._device.pointer
            self._launch = self._kernels.launch(
                "preprocess", (self._side, self._side), description, pixels, out
            )
        self._launch.run(self._stream)

    def free(self) -> None:
        for buffer in (self._device, self._host):
            if buffer is not None:
                buffer.free()
        self._device = self._host = self._launch = None

    def _fit(self, nbytes: int) -> None:
        if self._host is not None and self._host.nbytes >= nbytes:
            return
        if self._host is not None:
            self._stream.synchronize()  # an abandoned frame may still be reading it
            self.free()
        self._host = HostBuffer(self._cuda, nbytes)
        if not self._shared:
            self._device = DeviceBuffer(self._cuda, nbytes)
