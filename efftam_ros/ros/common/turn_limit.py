"""Ends a process whose main thread computes without end inside a library.

Fast DDS may never return from a call that takes a message (eProsima/Fast-DDS issue 6500). rclpy holds the
interpreter's lock during this call. So no other thread of the process can run Python code, and no signal
handler of Python runs either: only a timer of the kernel can still end the process. The launch file then
starts the node again.
"""

from __future__ import annotations

import ctypes
import faulthandler
import signal
import sys
from typing import Any

TURN_CPU_S = 5
"""Longest time that the main thread may compute in one turn, s. A turn takes milliseconds; one that imports
modules on a slow computer takes a few seconds."""
HUNG = signal.SIGVTALRM
"""The signal that ends a process whose turn exceeded the limit."""

_STDERR = 2
_CLOCK_THREAD_CPUTIME_ID, _SIGEV_SIGNAL = 3, 0  # Linux


class TurnLimit:
    """Context manager in which the kernel ends the process if one turn of this thread computes for too long.

    Only time in which this thread computes counts. Waiting does not: for the network, for a slow computer,
    for another thread, in a debugger, or while the process is stopped. Before the process ends, it prints
    where each of its threads is. Without Linux there is no limit.
    """

    def __init__(self, seconds: int = TURN_CPU_S) -> None:
        self._period = _Period(first_s=seconds)
        self._timer = ctypes.c_void_p()  # the kernel's first timer has the number 0, which is no pointer
        self._is_made = False

    def __enter__(self) -> TurnLimit:
        event = _Event(signo=HUNG, notify=_SIGEV_SIGNAL)
        if _LIBRARY is not None:
            clock, made = _CLOCK_THREAD_CPUTIME_ID, ctypes.byref(self._timer)
            self._is_made = _LIBRARY.timer_create(clock, ctypes.byref(event), made) == 0
        if self._is_made:
            # With `chain` the signal's default action follows, which ends the process.
            faulthandler.register(HUNG, file=_STDERR, chain=True)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._is_made:
            _LIBRARY.timer_delete(self._timer)
            faulthandler.unregister(HUNG)

    def restart(self) -> None:
        """Begin a turn, which may compute for the whole time from now on."""
        if self._is_made:
            _LIBRARY.timer_settime(self._timer, 0, ctypes.byref(self._period), None)


class _Event(ctypes.Structure):
    """`struct sigevent` of the C library. It may be longer than there."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("more", ctypes.c_char * 64),
    )


class _Period(ctypes.Structure):
    """`struct itimerspec` of the C library."""

    _fields_ = (
        ("again_s", ctypes.c_long),
        ("again_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


_LIBRARY: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
if not hasattr(_LIBRARY, "timer_create"):  # glibc before 2.34 has it in another library
    _LIBRARY = None
