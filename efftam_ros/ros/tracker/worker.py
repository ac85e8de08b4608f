"""The worker thread: the one that opens, uses and closes the pipeline, and steps the tracker while active."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError, PipelineLostError
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Frame, Image, Track, TrackState
from efftam_ros.ros.tracker.frame_buffer import BufferedFrame, Command, FrameBuffer, Task

Result = TypeVar("Result")


class WorkThread:
    """Runs the functions that it is given in one thread, one after the other.

    GPU libraries keep state per thread: the current device, captured graphs, library handles. A new thread
    for every activation would create them again, during the first frame."""

    def __init__(self, name: str = "efftam_worker") -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Result]) -> Future[Result]:
        """Have ``function`` run after all that was given before. Raises RuntimeError after `end`."""
        if not self._thread.is_alive():
            raise RuntimeError(f"thread {self._thread.name} has ended; start another one")
        done: Future[Result] = Future()
        self._work.put((function, done))
        return done

    def call(self, function: Callable[[], Result]) -> Result:
        """Run ``function`` there and wait; returns what it returns and raises what it raises."""
        return self.submit(function).result()

    def end(self) -> None:
        """Finish what was given and end the thread. Can be called twice."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            function, done = work
            try:
                result = function()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(result)


# Gain of the moving average of the frame time, per frame.
FRAME_TIME_GAIN = 0.2


class Listener(Protocol):
    """Receives the worker's results. Every method is called in the worker's thread."""

    def deliver(self, frame: BufferedFrame, image: Image, track: Track) -> None:
        """Handle the tracker's answer to an image.

        The tracker may be asked for its mask and predictions until this returns.
        """
        ...

    def image_refused(self, reason: str) -> None: ...

    def selection_accepted(self, command: Command) -> None:
        """The tracker now follows the selection; its first answer is delivered next."""
        ...

    def selection_refused(self, command: Command, reason: str) -> None: ...

    def cleared(self, command: Command) -> None:
        """The tracker has forgotten the target."""
        ...

    def skipped(self, images: int) -> None: ...

    def failed(self, error: Exception) -> None:
        """The tracker, or `deliver`, raised an exception not caused by input. The target was dropped, unless
        only the delivery failed."""
        ...


class Worker:
    """Owns the tracker while it runs. `stop` lets the current frame finish and be delivered."""

    def __init__(
        self, tracker: Tracker, frame_buffer: FrameBuffer, listener: Listener, thread: WorkThread
    ) -> None:
        self._thread = thread
        self._tracker, self._frame_buffer, self._listener = tracker, frame_buffer, listener
        self._config: TrackerConfig | None = None
        self.frame_s = 0.0
        """Current processing time of a frame, s; 0 before the first."""
        self.state = tracker.state
        """The target's state after the last image."""
        self._lost = ""  # why the pipeline has failed permanently
        self._running: Future[None] | None = None

    def start(self) -> None:
        self._running = self._thread.submit(self._run)
        self._running.add_done_callback(_report)

    def stop(self) -> Command | None:
        """Finish the current frame; returns the command that was still pending."""
        waiting = self._frame_buffer.close()
        if self._running is not None:
            wait([self._running])
        return waiting

    def reconfigure(self, config: TrackerConfig) -> None:
        """Use these settings from the next frame on."""
        self._config = config

    def _run(self) -> None:
        while (task := self._frame_buffer.take(self.frame_s)) is not None:
            config, self._config = self._config, None
            if config is not None:
                self._tracker.reconfigure(config)
            if task.frame is None:
                self._tracker.clear()
                self.state = self._tracker.state
                assert task.command is not None
                self._listener.cleared(task.command)
            else:
                self._process(task, task.frame)

    def _process(self, task: Task, frame: BufferedFrame) -> None:
        begin = time.monotonic()
        if task.skipped:
            self._listener.skipped(task.skipped)
        try:
            image = frame.read()
        except InputError as refusal:
            self._refuse_selection(task.command, str(refusal))
            self._listener.image_refused(str(refusal))
            return
        if self._lost:
            self._refuse_selection(task.command, self._lost)
            track = _idle(frame.stamp_ns, image, self._lost)
        else:
            try:
                track = self._tracker.step(Frame(image, frame.stamp_ns), task.prompt)
            except InputError as refusal:
                self._refuse_selection(task.command, str(refusal))
                return
            except Exception as error:
                track = _idle(frame.stamp_ns, image, self._drop_target(error))
                self._refuse_selection(task.command, track.reason)
            else:
                if task.command is not None:
                    self._listener.selection_accepted(task.command)
        self.state = track.state
        if track.processed:
            self._deliver(frame, image, track)
        else:
            self._listener.image_refused(track.reason)
        self._commit()
        taken = time.monotonic() - begin
        self.frame_s += (taken - self.frame_s) * (FRAME_TIME_GAIN if self.frame_s else 1.0)

    def _deliver(self, frame: BufferedFrame, image: Image, track: Track) -> None:
        """Hand over the answer. An exception here drops the target only if the pipeline is lost."""
        try:
            self._listener.deliver(frame, image, track)
        except PipelineLostError as error:
            self._drop_target(error)
            self.state = self._tracker.state
        except Exception as error:
            self._listener.failed(error)

    def _commit(self) -> None:
        """Compute the frame's contribution to the memory, after its answer was published."""
        try:
            self._tracker.commit()
        except Exception as error:
            self._drop_target(error)
            self.state = self._tracker.state

    def _drop_target(self, error: Exception) -> str:
        """Clear the target after any exception, so that tracking does not continue in an inconsistent state;
        returns the reason."""
        self._tracker.clear()
        self._listener.failed(error)
        if isinstance(error, PipelineLostError):
            self._lost = str(error)
            return self._lost
        return f"internal error ({type(error).__name__}: {error}); the target was dropped, select it again"

    def _refuse_selection(self, command: Command | None, reason: str) -> None:
        if command is not None:
            self._frame_buffer.resume()
            self._listener.selection_refused(command, reason)


def _report(running: Future[None]) -> None:
    """A fault of the worker itself must not be silent."""
    error = running.exception()
    if error is not None:
        traceback.print_exception(error)


def _idle(stamp_ns: int, image: Image, reason: str) -> Track:
    return Track(stamp_ns, TrackState.IDLE, image_size=(image.width, image.height), reason=reason)
