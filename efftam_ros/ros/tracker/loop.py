"""The tracking loop: takes images and commands from the buffer, updates the targets, publishes answers."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from efftam_ros.core.errors import InputError, PipelineLostError
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.targets import Step, TargetSet
from efftam_ros.core.types import Frame, Image, Prompt, Track, TrackState
from efftam_ros.images.levels import few_levels
from efftam_ros.images.message import ReceivedImage
from efftam_ros.images.pixels import GREY
from efftam_ros.messages.fields import About, Outcome
from efftam_ros.ros.common.nodes import ThrottledLog
from efftam_ros.ros.tracker.diagnostics import Statistics
from efftam_ros.ros.tracker.frame_buffer import (
    ALL,
    Clear,
    Command,
    Followed,
    FrameBuffer,
    Marked,
    Process,
    Propose,
    Reconfigure,
    Steer,
)
from efftam_ros.ros.tracker.publishing import Outputs

# Weight of the newest frame in the moving average of the time for one target, 0..1.
TIME_GAIN = 0.2
# Even if the computer is slow, at least this many targets are processed in each image: the steered target,
# and one of the others in turn.
MIN_TURNS = 2


@dataclass(frozen=True)
class Exchange:
    """The objects that the loop's thread and the executor's thread share. All are thread-safe.

    ``buffer``: images and commands for the loop. ``outputs``: the publishers and the last answers.
    """

    buffer: FrameBuffer
    outputs: Outputs
    statistics: Statistics
    log: ThrottledLog

    def show_state(self, track: Track, target_id: int) -> None:
        """Store a target's state for diagnostics, and log it if it has changed."""
        change = self.outputs.table.change(target_id, track)
        if change:
            self.log.inform("state", change)


@dataclass
class ImageInWork:
    """The data of the image that the loop is processing.

    ``command``: the selection on this image, None if it has none. ``followed``: ids of all targets, also of
    those that the image is not processed for. ``is_shown``: masks and overlay of this image are published,
    because the steered target is processed in it. ``outdated``: why answers to this image are outdated; empty
    if they are not. ``answered``: the published answers by target id. ``is_accepted``: the selection was
    accepted. ``is_refused``: the image could not be used for a target.
    """

    frame: ReceivedImage
    image: Image
    command: Command | None
    followed: set[int]
    is_shown: bool
    outdated: Reason
    answered: dict[int, Track] = field(default_factory=dict)
    is_accepted: bool = False
    is_refused: bool = False


class TrackingLoop:
    """Tracks the targets from activation to deactivation. `run` and all that it calls run in one thread.

    The loop receives images and commands only through the buffer, and returns its answers only through the
    outputs and the statistics.
    """

    def __init__(self, targets: TargetSet, exchange: Exchange) -> None:
        self._targets, self._exchange = targets, exchange
        self._buffer, self._outputs = exchange.buffer, exchange.outputs
        self._statistics, self._log = exchange.statistics, exchange.log
        self._table = self._outputs.table
        self._furthest_s = 0.0  # when the newest answered image arrived, s on the steady clock
        self._target_s = 0.0  # moving average of the time for one target in a frame, s; 0 before the first
        self._limit: int | None = None  # largest number of targets processed in an image; None: no limit
        self._lost = NO_REASON  # why the pipeline has failed permanently; empty while it works

    def run(self) -> None:
        """Carry out tasks until the buffer is closed. The task in work is finished first."""
        while (task := self._buffer.take(self._round_s, self._followed)) is not None:
            match task:
                case Reconfigure(settings):
                    self._targets.reconfigure(settings)
                case Steer(command):
                    self._steer(command)
                case Clear(command):
                    self._clear(command)
                case Propose(request):
                    self._propose(request)
                case Process():
                    self._process(task)

    @property
    def _followed(self) -> Followed:
        return Followed(tuple(self._targets.ids), self._targets.steered)

    @property
    def _round_s(self) -> float:
        """Time that the loop now needs to process an image for all targets, s; 0 before the first image."""
        count = len(self._targets.ids)
        return self._target_s * max(1, count if self._limit is None else min(count, self._limit))

    def _is_steered(self, target_id: int) -> bool:
        """Return whether the target is steered. While no target exists, an IDLE answer counts as steered."""
        return target_id == self._targets.steered or not self._targets.ids

    def _steer(self, command: Command) -> None:
        before = self._targets.steered
        try:
            self._targets.steer(command.target_id)
        except InputError as refusal:
            self._refuse(command, Reason.of(refusal, ReasonCode.COMMAND_REFUSED))
            return
        self._table.steer(command.target_id)
        if before != command.target_id:
            self._log.inform("steer", f"now steering by target {command.target_id} (was {before})")

    def _clear(self, command: Command) -> None:
        followed = self._targets.ids
        cleared = followed if command.target_id == ALL else [command.target_id]
        for target_id in cleared:
            self._forget(target_id)
        self._outputs.publish_result(command, Outcome.CLEARED)
        for target_id in cleared:
            self._announce_end(target_id, ReasonCode.CLEARED.reason())

    def _announce_end(self, target_id: int, reason: Reason) -> None:
        track = self._outputs.clear(target_id, reason)
        if track is not None:
            self._exchange.show_state(track, target_id)

    def abandon(self, reason: Reason) -> None:
        """Clear all targets for this reason, after an error that made them unusable."""
        for target_id in self._targets.ids:
            self._forget(target_id)
            self._announce_end(target_id, reason)

    def _forget(self, target_id: int) -> None:
        if target_id in self._targets.ids:
            self._targets.remove(target_id)
            self._table.steered = self._targets.steered

    def _propose(self, request: Marked) -> None:
        """Publish the box that the network gives for a prompt, or the reason why there is none.

        An error clears the targets only if it is a PipelineLostError.
        """
        frame, box = request.frame, None
        try:
            if self._lost:
                raise InputError(self._lost)
            image = frame.image()
            box = self._targets.propose(Frame(image, frame.stamp_ns), request.prompt)
            image.derived.pop(GREY, None)
            reason = NO_REASON if box is not None else ReasonCode.NOTHING_FOUND.reason(place="this place")
        except InputError as refusal:
            reason = Reason.of(refusal, ReasonCode.COMMAND_REFUSED)
        except PipelineLostError as error:
            self._report(error)
            self._lost = reason = ReasonCode.DEVICE_LOST.reason(fault=error)
            self.abandon(reason)
        except Exception as error:
            self._report(error)
            reason = internal_error(error)
        self._outputs.propose(frame.header, request.command.target_id, box, reason, frame.size)

    def _process(self, task: Process) -> None:
        """Decode an image, update its targets, and publish each target's answer as soon as it is computed.

        The targets' memory, which only later images use, is updated after all answers are published.
        """
        begin_s, frame = time.monotonic(), task.frame
        command = None if task.selection is None else task.selection.command
        if task.skipped:
            self._statistics.dropped(task.skipped)
        image = self._decoded(frame, command)
        if image is None:
            return
        prompts: dict[int, Prompt] = {}
        if self._lost:
            self._refuse(command, self._lost)
        elif task.selection is not None:
            prompts[task.selection.command.target_id] = task.selection.prompt
        work = self._begin(task, image, command)
        self._choose_limit(len(work.followed))
        try:
            self._targets.step(
                Frame(image, frame.stamp_ns),
                prompts,
                self._limit,
                task.ids,
                partial(self._on_answer, work, prompts),
            )
            self._targets.remember()
        except InputError as refusal:
            self._refuse(command, Reason.of(refusal, ReasonCode.COMMAND_REFUSED))
        except Exception as error:
            self._drop(work, error)
        self._close(work)
        # The buffer keeps the image, but its byte limit counts only the image itself, not the grey copy.
        image.derived.pop(GREY, None)
        taken_s = (time.monotonic() - begin_s) / max(1, len(work.answered))
        self._target_s += (taken_s - self._target_s) * (TIME_GAIN if self._target_s else 1.0)

    def _decoded(self, frame: ReceivedImage, command: Command | None) -> Image | None:
        """Return the decoded image, or None if it can't be decoded.

        The fault is reported, and the selection on this image (``command``) is refused. No target is cleared.
        """
        try:
            return frame.pixels if isinstance(frame.pixels, Image) else frame.image()
        except InputError as refusal:
            reason = Reason.of(refusal, ReasonCode.IMAGE_REFUSED)
        except Exception as error:
            self._report(error)
            reason = internal_error(error, "while an image was decoded ")
        self._refuse(command, reason)
        self._statistics.fault("image", reason)
        self._buffer.done(frame, time.monotonic())
        return None

    def _begin(self, task: Process, image: Image, command: Command | None) -> ImageInWork:
        prompted = set() if command is None else {command.target_id}
        steered = self._targets.steered
        return ImageInWork(
            frame=task.frame,
            image=image,
            command=command,
            followed={*self._targets.ids, *prompted} or {0},
            is_shown=task.ids is None or steered is None or steered in task.ids | prompted,
            outdated=self._catching_up(task.frame),
        )

    def _on_answer(self, work: ImageInWork, prompts: Mapping[int, Prompt], step: Step) -> None:
        if work.command is not None and step.target_id in prompts:
            work.is_accepted = True
            self._accept(work.command, work.image, step.track.reason)
        if self._lost:
            step = step._replace(track=replace(step.track, reason=self._lost))
        self._publish(work, step)

    def _choose_limit(self, count: int) -> None:
        """Limit the targets processed in an image if the time between two images is too short for all.

        ``count``: number of targets.
        """
        before, self._limit, target_s = self._limit, None, self._target_s
        if count > MIN_TURNS:
            interval_s = self._statistics.image_interval_s(time.monotonic())
            if interval_s is not None and target_s * count > interval_s:
                self._limit = most = max(MIN_TURNS, int(interval_s / target_s))
                self._table.turns = (
                    f"only {most} of {count} targets are processed in each image, in turn: one target takes"
                    f" {1e3 * target_s:.0f} ms, and an image comes every {1e3 * interval_s:.0f} ms"
                )
        if before is not None and self._limit is None:
            self._table.turns = ""

    def _accept(self, command: Command, image: Image, doubt: Reason) -> None:
        """Publish that a selection was accepted. ``doubt``: why it may be wrong; empty without a doubt."""
        few = few_levels(image)
        if few:
            self._statistics.fault("levels", few)
        self._table.select(command.target_id, command.number)
        self._table.steered = self._targets.steered
        both = doubt.with_detail(command.note) if command.note and doubt else NO_REASON
        self._outputs.publish_result(command, Outcome.ACCEPTED, both or doubt or command.note)

    def _publish(self, work: ImageInWork, step: Step) -> None:
        """Publish the answer for one target. A PipelineLostError is raised; other exceptions are reported."""
        target_id, track, frame = step.target_id, step.track, work.frame
        if not track.processed:
            if not work.is_refused:
                self._statistics.fault("image", track.reason)
            work.is_refused = True
            return
        is_steered = self._is_steered(target_id)
        try:
            about = About(frame.header, 0, target_id, is_steered, work.outdated)
            answer, no_bearing = self._outputs.publish(frame, step, about, self._stale(frame))
            if not work.answered:
                latency_s, again = answer.published_s - frame.arrived_s, frame.arrived_s <= self._furthest_s
                self._statistics.answered(answer.published_s, latency_s, again)
            work.answered[target_id] = track
            self._exchange.show_state(track, target_id)
            if track.state is TrackState.LOST:
                self._outputs.suggest(frame.header, target_id, track)
            if no_bearing:
                self._statistics.fault("bearing", no_bearing)
            # This comes last: if it fails, the answer has already been published and counted.
            if work.is_shown:
                are_several = len(work.followed) > 1
                self._outputs.views.add(frame.header, work.image, step, is_steered, are_several)
        except PipelineLostError:
            raise
        except Exception as error:
            self._report(error)

    def _close(self, work: ImageInWork) -> None:
        """Finish an image after its answers are published: publish the messages that cover all targets."""
        frame = work.frame
        if work.answered or work.is_refused:
            self._buffer.done(frame, time.monotonic())
        if not work.answered:
            return
        self._furthest_s = max(self._furthest_s, frame.arrived_s)
        if not work.is_shown:
            return
        try:
            self._outputs.publish_tracks(frame.header, self._targets.steered)
            self._outputs.views.publish_common(frame.header, work.answered)
        except Exception as error:
            self._report(error)

    def _stale(self, frame: ReceivedImage) -> Reason:
        """Return why this image is too old for steering although no newer one arrived; empty if it is not."""
        now_s = time.monotonic()
        stale, age_s = self._buffer.stale(now_s), now_s - frame.arrived_s
        return stale and ReasonCode.ANSWERED_LATE.reason(age_s=age_s, stale=stale)

    def _catching_up(self, frame: ReceivedImage) -> Reason:
        """Return why answers to this image are outdated: it or a newer image was answered before.

        Empty if they are not outdated.
        """
        newest = None if frame.arrived_s > self._furthest_s else self._buffer.newest
        if newest is None:
            return NO_REASON
        # Computed from arrivals, not stamps: the camera's clock may have been set back in between.
        behind_s = newest.arrived_s - frame.arrived_s
        return ReasonCode.CATCHING_UP.reason(behind_s=behind_s)

    def _refuse(self, command: Command | None, reason: Reason) -> None:
        if command is not None:
            self._buffer.resume(command.target_id)
            self._statistics.fault("selection", reason)
            self._outputs.publish_result(command, Outcome.REFUSED, reason)

    def _drop(self, work: ImageInWork, error: Exception) -> None:
        """Clear the targets that were in work at an exception, because their state may be half updated.

        All targets are cleared if the pipeline is lost.
        """
        self._report(error)
        dropped, image = self._targets.ids, work.image
        if isinstance(error, PipelineLostError):
            self._lost = reason = ReasonCode.DEVICE_LOST.reason(fault=error)
        else:
            reason = internal_error(error, advice="; the target was dropped, select it again")
            dropped = [one for one in dropped if one in self._targets.in_work]
        if not work.is_accepted:
            self._refuse(work.command, reason)
        for target_id in sorted(dropped, key=lambda one: not self._is_steered(one)):
            if target_id in work.answered:
                self._announce_end(target_id, reason)
            else:
                size = (image.width, image.height)
                track = Track(work.frame.stamp_ns, TrackState.IDLE, image_size=size, reason=reason)
                self._publish(work, Step(target_id, track, self._targets.tracker(target_id)))
            self._forget(target_id)

    def _report(self, error: Exception) -> None:
        is_lost = isinstance(error, PipelineLostError)
        self._statistics.failed(f"{type(error).__name__}: {error}", is_lost)
        if not is_lost:  # a lost pipeline is logged by `TrackerNode.close`, as the last line
            self._log.fail("failure", "".join(traceback.format_exception(error)).rstrip())


def internal_error(error: Exception, during: str = "", advice: str = "") -> Reason:
    """Return the reason INTERNAL_ERROR for an exception.

    ``during``, ``advice``: parts of its text: what the node did at the error, and what the user should do.
    """
    fault = f"{type(error).__name__}: {error}"
    return ReasonCode.INTERNAL_ERROR.reason(fault=fault, during=during, advice=advice)
