"""Measures the duration of each stage of a frame in PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

AFTER_THE_WAIT = "memory_encoder"
"""The stage that starts after the host has synchronised with the device, which it does once a frame."""


class StageTimer:
    """Measures the time inside ``with timer.stage(name)`` on the host's clock.

    It fits stages whose work is finished when their calls return. ``seconds``: duration of each stage of the
    current frame, by name.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def start_frame(self) -> None:
        """Start a frame with a new dictionary ``seconds``; the one of the previous frame is not changed."""
        self.seconds = {}

    @contextmanager
    def stage(self, name: str, *, on_host: bool = False) -> Iterator[None]:
        """Measure the stage ``name`` inside a ``with`` block. ``on_host``: it runs on the host only."""
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def waited(self) -> None:
        """Note that the host has synchronised with the device. Must be called each time that it has."""


class EventTimer(StageTimer):
    """Measures stages on an asynchronous device, with a pair of events around each stage.

    The events are read after the frame's synchronisation, so reading them does not add another one. The
    memory encoder starts after the synchronisation. So its reported time is that of the previous frame; only
    in the first frame the host waits for it.
    """

    def __init__(self, new_event: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self._new_event = new_event or partial(torch.cuda.Event, enable_timing=True)
        self._pairs: dict[str, tuple[Any, Any]] = {}
        self._unread: dict[str, None] = {}
        self._after_the_wait: float | None = None

    def start_frame(self) -> None:
        super().start_frame()
        self._unread = {name: None for name in self._unread if name == AFTER_THE_WAIT}

    @contextmanager
    def stage(self, name: str, *, on_host: bool = False) -> Iterator[None]:
        if on_host:
            with super().stage(name):
                yield
            return
        if name not in self._pairs:
            self._pairs[name] = self._new_event(), self._new_event()
        start, end = self._pairs[name]
        start.record()
        yield
        end.record()
        self._unread[name] = None
        if name == AFTER_THE_WAIT:
            if self._after_the_wait is None:
                end.synchronize()
                self._read(name)
            assert self._after_the_wait is not None
            self.seconds[name] = self._after_the_wait

    def waited(self) -> None:
        for name in list(self._unread):
            self._read(name)

    def _read(self, name: str) -> None:
        start, end = self._pairs[name]
        seconds = 1e-3 * start.elapsed_time(end)
        del self._unread[name]
        if name == AFTER_THE_WAIT:
            self._after_the_wait = seconds
        else:
            self.seconds[name] = seconds


def stage_timer(device: torch.device) -> StageTimer:
    """Return the timer that fits a device."""
    return EventTimer() if device.type == "cuda" else StageTimer()
