"""Small numbers that steer the kernels of a frame: written on the host, copied to the device by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.memory import Arena, HostBuffer, aligned
from efftam_ros.runtime.cuda.stream import Stream

PREPROCESS, PLAN, DECISION, MASK, SEARCH = "preprocess", "plan", "decision", "mask_view", "search_views"


class Parameters:
    """Blocks of pinned memory, each with its tensor of the same name in an arena."""

    def __init__(self, cuda: Cuda, arena: Arena, sizes: Mapping[str, int]) -> None:
        """``sizes``: bytes of each block. Raises CudaError when the system has too little memory to pin."""
        self._arena, self._sizes = arena, sizes
        self._host = HostBuffer(cuda, sum(map(aligned, sizes.values())))
        self._offsets, self._views = {}, {}
        offset = 0
        for name, nbytes in sizes.items():
            self._offsets[name] = offset
            self._views[name] = self._host.view(np.uint8, (nbytes,), offset)
            offset += aligned(nbytes)

    def view(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a block on the host; they must not change while a copy is on its way."""
        return self._views[name]

    def pointer(self, name: str, offset: int = 0) -> int:
        """Device address of a block."""
        return self._arena.pointer(name) + offset

    def upload(self, stream: Stream, name: str, nbytes: int | None = None) -> None:
        """Copy a block, or its first bytes, to the device."""
        size = self._sizes[name] if nbytes is None else nbytes
        stream.copy_in(self._arena.pointer(name), self._host, size, self._offsets[name])

    def uploading(self, stream: Stream, name: str) -> Callable[[], None]:
        """`upload` of a whole block, as a step of a `Section`."""
        return lambda: self.upload(stream, name)

    def free(self) -> None:
        self._views = {}
        self._host.free()
