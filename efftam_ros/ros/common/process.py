"""Runs a node as a process, from the command line to an orderly shutdown.

SIGINT, SIGTERM and SIGHUP end it with code 0 after the node has closed. They are handled from the start,
before ROS and the node are imported, and a second signal has no effect, so that none can cause a traceback or
an incomplete answer.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from efftam_ros.core.errors import InputError, one_line
from efftam_ros.packages import missing_package
from efftam_ros.ros.common.parameters import ParameterSet
from efftam_ros.ros.common.participants import apart_from_the_dead, may_renew, renew

USER_ERROR = 2
"""Exit code of a node that was given something which the user has to correct: started again it ends again."""
DEVICE_LOST = 3
"""Exit code of a node whose GPU failed permanently; after a restart it may work."""
MAX_DEVICE_RESTARTS, WITHIN_S = 3, 60.0
FIRST_RESTARTS, SHORT_WAIT_S, LONG_WAIT_S = 3, 1.0, 10.0


class Restarts:
    """When a node that ended is started again by the launch file.

    One that ended by itself or was killed starts again after 1 s, and after 10 s once that happened three
    times within a minute: a vehicle in flight needs its bridge and its gimbal controller. One that ended on
    request (0) or by an error that the user has to correct (2) stays ended, and so does one that lost its GPU
    (3) a fourth time within a minute.
    """

    def __init__(self) -> None:
        self._moments_s: list[float] = []

    def wait_s(self, code: int, now_s: float) -> float | None:
        """Return how long to wait before the next start, s; None: it stays ended. ``code``: what the process
        ended with, negative for a signal; ``now_s``: on a steady clock."""
        if code in (0, USER_ERROR):
            return None
        self._moments_s = [moment_s for moment_s in self._moments_s if now_s - moment_s < WITHIN_S]
        if code == DEVICE_LOST and len(self._moments_s) >= MAX_DEVICE_RESTARTS:
            return None
        self._moments_s.append(now_s)
        return SHORT_WAIT_S if len(self._moments_s) <= FIRST_RESTARTS else LONG_WAIT_S


# SIGHUP: the terminal went, mostly a broken connection to the vehicle's computer.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopFlag:
    """Context manager in which these signals only set ``asked``. A SIGHUP that is ignored (nohup) stays so.

    They are ignored after the context: with the default handlers restored, a signal during interpreter
    shutdown would kill the process.
    """

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> StopFlag:
        for number in SIGNALS:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._ask)
        return self

    def __exit__(self, *exception: Any) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True


# Longest time until a signal is noticed while no message arrives, s.
PATIENCE_S = 0.1
# How often a node that works at its own rate looks at services, timers and events by default, s. On the time
# of /clock it looks at every turn: that topic is a subscription too, and until it is served the node's clock
# stands still.
SERVED_S = 0.08
# Pause after an unforeseen error, and the time within which one traceback is logged, s.
AFTER_ERROR_S, ERROR_PERIOD_S = 0.01, 5.0


def run_node(
    name: str, make: Callable[[], Any], args: list[str] | None, help_text: Callable[[], str] | None = None
) -> int:
    """Run the node that ``make`` returns until a signal.

    The node has ``start()``, which may raise InputError as ``make`` may, and ``close()``, which ends it. A
    node that works at its own rate has ``tick()`` too: it does the due work and returns the time until the
    next work, s, or None while it waits for calls alone; its ``served_s`` is how long a call may wait (on
    wall time). One that may lose its device has ``lost``: why, empty before; the process then ends at once,
    with `DEVICE_LOST`. One with diagnostics has ``internal_error(error)``: it is called for errors of its
    callbacks and of ``tick`` that nobody foresaw, which do not end it. One with a thread that may stay in a
    library's call after ``close()`` has ``is_stuck``: whether it does; the interpreter would crash over it.
    One that notices that nothing reaches it has ``renewal``: why; the process is then started again, once, as
    another DDS participant.
    What ``help_text`` makes is printed for --help. Returns the exit code; 2 for an error that the user can
    correct, reported in one line.
    """
    own = without_ros_arguments((sys.argv if args is None else args)[1:])
    if help_text is not None and {"-h", "--help"} & set(own):
        print(help_text())
        return 0
    if own:
        print(
            f"{name}: unknown argument {own[0]!r} (see {name} --help); parameters are given as"
            " --ros-args -p NAME:=VALUE",
            file=sys.stderr,
        )
        return USER_ERROR
    with StopFlag() as stop:
        return _run(stop, name, make, args)


class NodeProgram(NamedTuple):
    """A node that runs as a process. ``module``, ``node``: where its class is; ``parameters``: the module
    with its `PARAMETERS`, or MODULE:NAME; ``text``: what --help prints between usage and parameters."""

    module: str
    node: str
    parameters: str
    text: str


def run_program(name: str, program: NodeProgram, args: list[str] | None = None, **given: Any) -> int:
    """Run a node until a signal or a shutdown; returns the exit code, 2 for an error that the user can
    correct, reported in one line. ``given``: to the node's class, in tests and benchmarks."""

    def make() -> Any:
        # Once signals are handled: this takes a second or more.
        return getattr(import_module(program.module), program.node)(**given)

    usage = f"usage: {name} [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]]"
    return run_node(name, make, args, lambda: f"{usage}\n\n{program.text}\n{_parameters(program)}")


def parameters_of(program: NodeProgram) -> ParameterSet:
    """Return the parameters of a node; ROS need not be installed."""
    module, _, name = program.parameters.partition(":")
    known: ParameterSet = getattr(import_module(module), name or "PARAMETERS")
    return known


def _parameters(program: NodeProgram) -> str:
    text = parameters_of(program).as_help()
    return f"\nParameters, given as -p NAME:=VALUE, with their defaults.\n{text}"


def without_ros_arguments(arguments: list[str]) -> list[str]:
    """Return what is not between ``--ros-args`` and ``--`` or the end, as rcl reads them; without importing
    ROS."""
    own = []
    is_of_ros = False
    for argument in arguments:
        if argument == "--ros-args" or (is_of_ros and argument == "--"):
            is_of_ros = argument == "--ros-args"
        elif not is_of_ros:
            own.append(argument)
    return own


class _Turns:
    """Runs a node in turns: the work due at its own rate, then messages, calls and timers. ``began_s``: start
    of the last turn, steady clock.
    """

    def __init__(self, executor: Any, node: Any) -> None:
        self._executor, self._node = executor, node
        self.began_s = time.monotonic()
        self._tick: Callable[[], float | None] = getattr(node, "tick", lambda: None)
        self._period_s = getattr(node, "served_s", SERVED_S)
        self._last_served_s = 0.0

    def take(self) -> None:
        self.began_s = time.monotonic()
        idle_s = self._tick()
        if idle_s is None:
            self._executor.spin_once(timeout_sec=PATIENCE_S)
            return
        if self._node.get_clock().ros_time_is_active:
            self._executor.spin_once(timeout_sec=max(idle_s, 0.0))
            return
        now_s = time.monotonic()
        if now_s - self._last_served_s >= self._period_s:
            self._last_served_s = now_s
            self._executor.spin_once(timeout_sec=0.0)
        elif idle_s > 0.0:
            time.sleep(idle_s)


class _Waker:
    """Context manager in which a turn that waits for too long is woken.

    A middleware that was built for an older C library waits by the system's clock: where that is set back,
    the wait lasts as much longer, and no timer, message or signal would be served meanwhile.
    """

    def __init__(self, executor: Any, turns: _Turns) -> None:
        self._executor, self._turns, self._has_ended = executor, turns, False
        self._thread = threading.Thread(target=self._watch, name="waker", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: Any) -> None:
        self._has_ended = True
        self._thread.join()

    def _watch(self) -> None:
        while not self._has_ended:
            # Not by `Event.wait`, which goes by the system's clock before Python 3.11.
            time.sleep(PATIENCE_S)
            if time.monotonic() - self._turns.began_s > 2 * PATIENCE_S:
                self._executor.wake()


def _spin(stop: StopFlag, executor: Any, node: Any, renews: bool = False) -> str:
    """See `_serve`."""
    turns = _Turns(executor, node)
    with _Waker(executor, turns):
        return _serve(stop, turns, node, renews)


def _serve(stop: StopFlag, turns: _Turns, node: Any, renews: bool) -> str:
    """Serve until a signal, until the device is lost, or until ROS is shut down.

    Where the process ``renews``, also until the node returns why it should be another DDS participant, which
    is returned.

    An unforeseen error of a callback, or of the node's own work, is logged, and the next turn follows.
    """
    last_logged_s = float("-inf")
    while not stop.asked and not getattr(node, "lost", ""):
        renewal = str(getattr(node, "renewal", "")) if renews else ""
        if renewal:
            return renewal
        try:
            turns.take()
        except Exception as error:
            if not node.context.ok():
                return ""  # ROS was shut down: there is nothing left to serve
            getattr(node, "internal_error", lambda error: None)(error)
            if time.monotonic() - last_logged_s >= ERROR_PERIOD_S:
                last_logged_s = time.monotonic()
                text = "".join(traceback.format_exception(error)).rstrip()
                node.get_logger().error(f"internal error; the node goes on: {text}")
            time.sleep(AFTER_ERROR_S)
    return ""


def spin(executor: Any, done: Callable[[], object], seconds: float) -> bool:
    """Serve until ``done`` returns True, at most so long; returns whether it did."""
    end_s = time.monotonic() + seconds
    while not done():
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            return False
        executor.spin_once(timeout_sec=min(left_s, 0.05))
    return True


def start_ros(args: list[str] | None = None) -> None:
    """Call ``rclpy.init`` without its signal handlers. Raises InputError: a parameter file or an argument
    that rcl can't read, no folder for logs."""
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        text = one_line(error)
        # Can't be made, or, without HOME (systemd), is not known.
        if "log directory" in text or "logging directory" in text:
            text += "; set ROS_LOG_DIR to a folder that can be written"
        raise InputError(text) from None


def _run(stop: StopFlag, name: str, make: Callable[[], Any], args: list[str] | None) -> int:
    import rclpy
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

    node, executor, renewal = None, None, ""
    try:
        start_ros(args)
        executor = SingleThreadedExecutor()
        with apart_from_the_dead(name):
            node = make()
        executor.add_node(node)
        if not stop.asked:
            node.start()
        renewal = _spin(stop, executor, node, may_renew())
    except InputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return USER_ERROR
    except ModuleNotFoundError as error:
        package = missing_package(error)
        if package is None:
            raise
        print(
            f"{name}: the Python package {package.pip} is not installed for {sys.executable}; run:"
            f" {sys.executable} -m pip install {package.pip}",
            file=sys.stderr,
        )
        return USER_ERROR
    except ExternalShutdownException:
        pass
    finally:
        if node is not None:
            node.close()
        if executor is not None:
            executor.shutdown()
        rclpy.try_shutdown()
    if getattr(node, "lost", ""):
        # A library whose device is gone may abort when it frees its memory there.
        _end_at_once(DEVICE_LOST)
    if renewal and not stop.asked:
        print(f"{name}: {renewal}; the node is started again as another participant", file=sys.stderr)
        renew()
    if getattr(node, "is_stuck", False):
        _end_at_once(0)
    return 0


def _end_at_once(code: int) -> None:
    """End the process without the clean-up of interpreter and libraries."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
