"""Runs a node as a process, from the command line to an orderly shutdown.

SIGINT, SIGTERM and SIGHUP close the node and end the process with code 0. They are handled before ROS and the
node are imported, and a second signal has no effect. So a signal never causes a traceback or an incomplete
message.
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
from efftam_ros.ros.common.turn_limit import TurnLimit

USER_ERROR = 2
"""Exit code for an error that the user has to correct, such as a wrong parameter. A restart does not help."""
DEVICE_LOST = 3
"""Exit code of a node whose GPU failed permanently. A new process may be able to use the GPU again."""
# A node that lost its GPU is restarted at most MAX_DEVICE_RESTARTS times within WITHIN_S seconds.
MAX_DEVICE_RESTARTS, WITHIN_S = 3, 60.0
# The first FIRST_RESTARTS restarts within WITHIN_S follow after SHORT_WAIT_S seconds, later ones after
# LONG_WAIT_S seconds.
FIRST_RESTARTS, SHORT_WAIT_S, LONG_WAIT_S = 3, 1.0, 10.0


class Restarts:
    """Decides whether and when the launch file starts a node again after it ended. One object per node.

    A node that failed or was killed is started again, because a vehicle in flight needs its bridge and its
    gimbal controller. The wait is 1 s, or 10 s after three restarts within a minute. A node is not started
    again if it ended on request (exit code 0), if the user has to correct something (2), or if it lost its
    GPU (3) and was restarted three times within a minute.
    """

    def __init__(self) -> None:
        self._moments_s: list[float] = []

    def wait_s(self, code: int, now_s: float) -> float | None:
        """Return the time to wait before the node is started again, s; None: it is not started again.

        ``code``: exit code of the process, or the negative number of the signal that ended it. ``now_s``:
        time on a steady clock.
        """
        if code in (0, USER_ERROR):
            return None
        self._moments_s = [moment_s for moment_s in self._moments_s if now_s - moment_s < WITHIN_S]
        if code == DEVICE_LOST and len(self._moments_s) >= MAX_DEVICE_RESTARTS:
            return None
        self._moments_s.append(now_s)
        return SHORT_WAIT_S if len(self._moments_s) <= FIRST_RESTARTS else LONG_WAIT_S


# The signals that end a node. SIGHUP comes when the terminal is closed, mostly because the connection to the
# vehicle's computer broke.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopFlag:
    """Context manager in which the signals of `SIGNALS` only set ``asked``.

    If SIGHUP is ignored at the start (nohup), it stays ignored. After the context all these signals are
    ignored: with the default handlers, a signal during the interpreter's shutdown would kill the process.
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
# Default period in which a node with a `tick` handles its services, timers and events, s. It is used on wall
# time only: a node that uses /clock handles them at every turn, because its clock stands still until the
# messages on /clock are handled.
SERVED_S = 0.08
# Pause after an unforeseen error, s, and the period in which at most one traceback is logged, s.
AFTER_ERROR_S, ERROR_PERIOD_S = 0.01, 5.0


def run_node(
    name: str, make: Callable[[], Any], args: list[str] | None, help_text: Callable[[], str] | None = None
) -> int:
    """Make a node by ``make``, and run it until the process receives a signal of `SIGNALS`.

    ``make`` and the node's ``start()`` may raise InputError. ``close()`` ends the node. The node may also
    have these attributes:

    - ``tick()``, of a node that works at its own rate: does the due work and returns the time until the next
      work, s, or None if there is work only after a call or a message.
    - ``served_s``: longest time that a call or message waits between two ticks, s (on wall time).
    - ``lost``: why the node lost its device; empty before. The process then ends at once with `DEVICE_LOST`.
    - ``internal_error(error)``: called with an unforeseen error of a callback or of ``tick``. The node
      continues after the error.
    - ``is_stuck``: after ``close()``, a thread of the node is still inside a call of a library. The process
      then ends without the interpreter's clean-up, which would crash.
    - ``renewal``: why the process should become another DDS participant; empty if it should not. The process
      is then started again, once.

    ``help_text`` makes the text for --help. Returns the exit code; `USER_ERROR` for an error that the user
    can correct, which is printed in one line.
    """
    own = without_ros_arguments((sys.argv if args is None else args)[1:])
    if help_text is not None and {"-h", "--help"} & set(own):
        _print_until_closed(help_text())
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


def _print_until_closed(text: str) -> None:
    """Print a text on the standard output, of which a reader such as ``head`` may read only a part."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Otherwise the interpreter would flush the buffer at exit and report the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class NodeProgram(NamedTuple):
    """A node that runs as a process.

    ``module``, ``node``: module and name of the node's class. ``parameters``: the module that contains its
    `ParameterSet` as PARAMETERS, or MODULE:NAME. ``text``: printed by --help between usage and parameters.
    """

    module: str
    node: str
    parameters: str
    text: str


def run_program(name: str, program: NodeProgram, args: list[str] | None = None, **given: Any) -> int:
    """Run a node as `run_node` does, and return the exit code.

    ``args``: the command line, with the program's name first; None: `sys.argv`. ``given``: arguments of the
    node's class, which only tests and benchmarks use.
    """

    def make() -> Any:
        # The import takes a second or more. It happens here, where signals are already handled.
        return getattr(import_module(program.module), program.node)(**given)

    usage = f"usage: {name} [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]]"
    return run_node(name, make, args, lambda: f"{usage}\n\n{program.text}\n{_parameters(program)}")


def parameters_of(program: NodeProgram) -> ParameterSet:
    """Return the parameters of a node. This also works where ROS is not installed."""
    module, _, name = program.parameters.partition(":")
    known: ParameterSet = getattr(import_module(module), name or "PARAMETERS")
    return known


def _parameters(program: NodeProgram) -> str:
    text = parameters_of(program).as_help()
    return f"\nParameters, given as -p NAME:=VALUE, with their defaults.\n{text}"


def without_ros_arguments(arguments: list[str]) -> list[str]:
    """Return the arguments that are not for ROS, without importing ROS.

    The arguments for ROS stand between ``--ros-args`` and ``--`` or the end, as in rcl.
    """
    own = []
    is_of_ros = False
    for argument in arguments:
        if argument == "--ros-args" or (is_of_ros and argument == "--"):
            is_of_ros = argument == "--ros-args"
        elif not is_of_ros:
            own.append(argument)
    return own


class _Turns:
    """Runs a node in turns. A turn does the work due at the node's own rate, then handles messages, calls and
    timers.

    ``began_s``: start of the last turn, s on the steady clock.
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
    """Context manager in which a thread wakes the executor if a turn waits for too long.

    A middleware that was built for an older C library waits by the system's clock. If that clock is set back,
    the wait lasts longer by the same time. No timer, message or signal would be handled meanwhile.
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
            # `Event.wait` is not used, because it waits by the system's clock before Python 3.11.
            time.sleep(PATIENCE_S)
            if time.monotonic() - self._turns.began_s > 2 * PATIENCE_S:
                self._executor.wake()


def _spin(stop: StopFlag, executor: Any, node: Any, renews: bool = False) -> str:
    """Run the node's turns as `_serve` does.

    A `_Waker` ends waits that are too long. A `TurnLimit` ends the process if a turn computes without end.
    """
    turns = _Turns(executor, node)
    with _Waker(executor, turns), TurnLimit() as limit:
        return _serve(stop, turns, limit, node, renews)


def _serve(stop: StopFlag, turns: _Turns, limit: TurnLimit, node: Any, renews: bool) -> str:
    """Run turns until a signal, until the node's device is lost, or until ROS is shut down.

    ``renews``: end also when the node gives a reason to become another DDS participant (its ``renewal``).
    Returns this reason, or an empty string. An unforeseen error of a callback or of the node's own work is
    logged, and the next turn follows.
    """
    last_logged_s = float("-inf")
    while not stop.asked and not getattr(node, "lost", ""):
        renewal = str(getattr(node, "renewal", "")) if renews else ""
        if renewal:
            return renewal
        limit.restart()
        try:
            turns.take()
        except Exception as error:
            if not node.context.ok():
                return ""  # ROS was shut down, which caused the error
            getattr(node, "internal_error", lambda error: None)(error)
            if time.monotonic() - last_logged_s >= ERROR_PERIOD_S:
                last_logged_s = time.monotonic()
                text = "".join(traceback.format_exception(error)).rstrip()
                node.get_logger().error(f"internal error; the node continues: {text}")
            time.sleep(AFTER_ERROR_S)
    return ""


def spin(executor: Any, done: Callable[[], object], seconds: float) -> bool:
    """Run the executor until ``done()`` is true. Return False if it is not true within ``seconds``."""
    end_s = time.monotonic() + seconds
    while not done():
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            return False
        executor.spin_once(timeout_sec=min(left_s, 0.05))
    return True


def start_ros(args: list[str] | None = None) -> None:
    """Call ``rclpy.init`` without its signal handlers.

    Raises InputError if rcl can't read a parameter file or an argument, or can't make the folder for logs.
    """
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        text = one_line(error)
        # rcl can't create the folder for logs, or does not find its path because HOME is not set (systemd).
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
        # The clean-up of the libraries is skipped: one may abort when it frees memory on the lost device.
        _end_at_once(DEVICE_LOST)
    if renewal and not stop.asked:
        print(f"{name}: {renewal}; the node now starts again as another DDS participant", file=sys.stderr)
        renew()
    if getattr(node, "is_stuck", False):
        _end_at_once(0)
    return 0


def _end_at_once(code: int) -> None:
    """End the process without the clean-up of the interpreter and of the libraries."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
