"""The loop that tracks: takes an image or a command, steps the tracker, publishes, commits."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, NamedTuple

from efftam_ros.core.errors import InputError, PipelineLostError
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Frame, Image, Track, TrackState
from efftam_ros.interop.messages import Outcome
from efftam_ros.ros.common.reporting import ThrottledLog
from efftam_ros.ros.tracker.diagnostics import Statistics
from efftam_ros.ros.tracker.frame_buffer import BufferedFrame, Command, FrameBuffer, Task
from efftam_ros.ros.tracker.publishing import Outputs
from efftam_ros.runtime.image.encodings import GREY
from efftam_ros.runtime.image.levels import few_levels

if TYPE_CHECKING:
    from efftam_ros.ros.tracker.attitude_input import AttitudeInput

# Gain of the moving average of the frame time, per frame.
FRAME_TIME_GAIN = 0.2


class Shared(NamedTuple):
    """What the loop shares with the executor's thread; all of it is thread-safe.

    ``buffer``: images and commands for the loop; ``outputs``: publishers and its latest answer.
    """

    buffer: FrameBuffer
    outputs: Outputs
    statistics: Statistics
    log: ThrottledLog

    def tell_state(self, track: Track) -> None:
        """Have diagnostics show the state, and log that it changed."""
        change = self.statistics.state(track)
        if change:
            self.log.inform("state", change)


class TrackingLoop:
    """Owns the tracker from activation to deactivation: `run` and all it calls are in one thread.

    It receives through the buffer alone, and hands over its answers through the outputs and the statistics.
    """

    def __init__(self, tracker: Tracker, shared: Shared, attitude: AttitudeInput | None = None) -> None:
        self._tracker, self._attitude, self._shared = tracker, attitude, shared
        self._buffer, self._outputs, self._statistics, self._log = shared
        self._selection = 0  # number of the selection being tracked
        self._furthest_s = 0.0  # arrival of the newest image that was answered
        self._frame_s = 0.0  # moving average of the time of a frame; 0 before the first
        self._lost = ""  # why the pipeline has failed permanently

    def run(self) -> None:
        """Work until the buffer is closed; the frame in work is finished."""
        while (task := self._buffer.take(self._frame_s)) is not None:
            if task.settings is not None:
                self._tracker.reconfigure(task.settings)
            if task.frame is not None:
                self._process(task, task.frame)
            elif task.command is not None:
                self._clear(task.command)

    def _clear(self, command: Command) -> None:
        self._tracker.clear()
        self._outputs.publish_result(command, Outcome.CLEARED)
        track = self._outputs.clear("the target was cleared")
        if track is not None:
            self._shared.tell_state(track)

    def _process(self, task: Task, frame: BufferedFrame) -> None:
        begin_s = time.monotonic()
        if task.skipped:
            self._statistics.dropped(task.skipped)
        try:
            image = frame.pixels if isinstance(frame.pixels, Image) else frame.pixels()
        except InputError as refusal:
            self._refuse(task.command, str(refusal))
            self._refuse_image(frame, str(refusal))
            return
        try:
            if self._lost:
                raise PipelineLostError(self._lost)
            track = self._tracker.step(Frame(image, frame.stamp_ns), task.prompt)
        except InputError as refusal:
            self._refuse(task.command, str(refusal))
            return
        except Exception as error:
            reason = self._lost or self._drop_target(error)
            track = Track(
                frame.stamp_ns, TrackState.IDLE, image_size=(image.width, image.height), reason=reason
            )
            self._refuse(task.command, reason)
        else:
            if task.command is not None:
                few = few_levels(image)
                if few:
                    self._statistics.few_levels(few)
                self._selection = task.command.number
                self._outputs.publish_result(task.command, Outcome.ACCEPTED, task.command.note)
        if track.processed:
            self._publish(frame, image, track)
        else:
            self._refuse_image(frame, track.reason)
        try:
            self._tracker.commit()
        except Exception as error:
            self._drop_target(error)
        image.derived.pop(GREY, None)  # the buffer keeps the image, and counts only its own bytes
        taken_s = time.monotonic() - begin_s
        self._frame_s += (taken_s - self._frame_s) * (FRAME_TIME_GAIN if self._frame_s else 1.0)

    def _publish(self, frame: BufferedFrame, image: Image, track: Track) -> None:
        """Publish the answer. An exception here drops the target only if the pipeline is lost."""
        try:
            answer, no_bearing = self._outputs.publish(
                frame,
                track,
                self._tracker,
                0 if track.state is TrackState.IDLE else self._selection,
                self._catching_up(frame),
                self._stale(frame),
            )
            self._statistics.answered(
                answer.published_s,
                answer.published_s - frame.arrived_s,
                track,
                again=frame.arrived_s <= self._furthest_s,
            )
            self._buffer.done(frame, answer.published_s)
            self._furthest_s = max(self._furthest_s, frame.arrived_s)
            self._shared.tell_state(track)
            if no_bearing:
                self._statistics.no_bearing(no_bearing)
            if self._attitude is not None and track.camera is not None and track.camera.reason:
                reason = self._attitude.refusal or track.camera.reason
                self._statistics.no_camera_motion(reason, from_images=track.camera.matrix is not None)
            # Last: when it fails, the answer has been published and counted.
            self._outputs.publish_views(frame.header, image, track, self._tracker)
        except PipelineLostError as error:
            self._drop_target(error)
        except Exception as error:
            self._report(error)

    def _stale(self, frame: BufferedFrame) -> str:
        """Why this image is too old to be steered by although it is the newest; empty if it is not."""
        now_s = time.monotonic()
        stale, age_s = self._buffer.stale(now_s), now_s - frame.arrived_s
        return stale and f"answered {age_s:.2f} s after this image came, and none is newer: {stale}"

    def _catching_up(self, frame: BufferedFrame) -> str:
        """Why the answer to this image is outdated (it or a newer image was answered before); empty if it is
        not."""
        newest = None if frame.arrived_s > self._furthest_s else self._buffer.newest
        if newest is None:
            return ""
        # By arrival: the camera's clock may have gone back in between.
        behind_s = newest.arrived_s - frame.arrived_s
        return f"catching up after a selection: {behind_s:.2f} s behind the camera"

    def _refuse(self, command: Command | None, reason: str) -> None:
        if command is not None:
            self._buffer.resume()
            self._statistics.selection_refused(reason)
            self._outputs.publish_result(command, Outcome.REFUSED, reason)

    def _refuse_image(self, frame: BufferedFrame, reason: str) -> None:
        self._statistics.image_refused(reason)
        self._buffer.done(frame, time.monotonic())

    def _drop_target(self, error: Exception) -> str:
        """Clear the target after any exception, so that tracking does not continue in an inconsistent state;
        returns the reason."""
        self._tracker.clear()
        self._report(error)
        if isinstance(error, PipelineLostError):
            self._lost = str(error)
            return self._lost
        return f"internal error ({type(error).__name__}: {error}); the target was dropped, select it again"

    def _report(self, error: Exception) -> None:
        self._statistics.failed(f"{type(error).__name__}: {error}", isinstance(error, PipelineLostError))
        self._log.fail("failure", "".join(traceback.format_exception(error)).rstrip())
