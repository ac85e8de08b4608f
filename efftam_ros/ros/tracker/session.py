"""One activation of the tracker: creates the receivers and the loop, watches both, and ends them."""

from __future__ import annotations

import time
import traceback
from concurrent.futures import Executor, wait
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from rclpy.node import Node

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.targets import TargetSet
from efftam_ros.core.tracker import missed_state
from efftam_ros.core.types import Track, TrackState
from efftam_ros.messages.fields import STEERABLE, Outcome
from efftam_ros.ros.common.nodes import Subscriptions, steady_timer
from efftam_ros.ros.tracker.loop import Exchange, TrackingLoop, internal_error
from efftam_ros.ros.tracker.parameters import NodeConfig
from efftam_ros.ros.tracker.receiving import Receiver, Selections
from efftam_ros.ros.tracker.table import PublishedAnswer

# Period of checking the image publishers, s.
INPUT_PERIOD_S = 0.2
# Time after the activation when a warning is logged if no image has arrived yet, s.
FIRST_IMAGE_S = 2.0
# Number of checks of images and answers in the time that the parameter image_timeout gives.
CHECKS_PER_TIMEOUT = 5
# The loop counts as stalled if an image waits for longer than image_timeout plus STALL_FRAMES times the
# processing time of a frame. While no target is valid, it must also wait for longer than STALL_PATIENCE_S,
# because the first frames and the search for a lost target are slow.
STALL_FRAMES = 3.0
STALL_PATIENCE_S = 2.0
# Pause before the loop is started again after an unforeseen error, s.
RESTART_S = 0.05


def state_after(track: Track, silence_s: float, config: TrackerConfig) -> TrackState:
    """Return the state of a target when no image has arrived for ``silence_s``.

    ``track``: the target in the last image. The state is the one that the tracker would give the target at
    the next image: LOST after ``max_gap``, or, if the target was COASTING, ``lost_after`` after its last box.
    """
    if track.state in (TrackState.IDLE, TrackState.LOST):
        return track.state
    if silence_s > config.max_gap:
        return TrackState.LOST
    if track.state is TrackState.COASTING:
        return missed_state(track.age_s + silence_s, config.lost_after)
    return TrackState.COASTING


class SilenceWatch:
    """Checks by two timers whether images arrive and answers are published.

    When either stops, the last answers are published again with valid = false and the reason. All of this
    runs in the executor's thread.
    """

    def __init__(
        self, node: Node, exchange: Exchange, config: NodeConfig, tracker: TrackerConfig, receiver: Receiver
    ) -> None:
        self._node, self._receiver, self._exchange, self._tracker_config = node, receiver, exchange, tracker
        self._buffer, self._outputs = exchange.buffer, exchange.outputs
        self._statistics, self._log = exchange.statistics, exchange.log
        self._begin_s = time.monotonic()
        self._timeout_s = 0.0
        self._timers = [steady_timer(node, INPUT_PERIOD_S, self._check_input)]
        self.reconfigure(config, tracker)

    def reconfigure(self, config: NodeConfig, tracker: TrackerConfig) -> None:
        self._tracker_config = tracker
        if config.image_timeout == self._timeout_s:
            return
        self._timeout_s = config.image_timeout
        for timer in self._timers[1:]:
            self._node.destroy_timer(timer)
        period_s = config.image_timeout / CHECKS_PER_TIMEOUT
        self._timers[1:] = [steady_timer(self._node, period_s, self._check_answers)]

    def close(self) -> None:
        while self._timers:
            self._node.destroy_timer(self._timers.pop())

    def _check_input(self) -> None:
        self._receiver.look()
        images = self._receiver.input
        facts = images.facts | {"camera_info": self._receiver.describe_camera()}
        if self._receiver.image_range:
            facts["range of 16-bit images"] = self._receiver.image_range
        why = images.explain(self._buffer.newest is not None)
        self._statistics.input_seen(facts, why)
        findings = {"others": self._outputs.others, "mixed": images.mixed}
        self._statistics.topics_shared([reason for reason in findings.values() if reason])
        for kind, reason in findings.items():
            if reason:
                self._log.remind(kind, reason)
        loss = self._statistics.loss(time.monotonic())
        if loss:
            self._log.warn("loss", loss)
        if self._statistics.frozen and not self._buffer.stale(time.monotonic()):
            self._log.remind("frozen", self._statistics.frozen)
        if self._buffer.newest is None and time.monotonic() - self._begin_s > FIRST_IMAGE_S:
            self._log.remind("input", self._receiver.explain_no_image())

    def _check_answers(self) -> None:
        now_s, answers = time.monotonic(), self._outputs.table.answers
        patience_s = self._timeout_s + STALL_FRAMES * self._buffer.frame_s
        stale, stalled = self._buffer.stale(now_s), self._stalled(now_s, patience_s)
        if stalled and not stale:
            self._statistics.stalled(stalled)
        if not answers:
            return
        last_s = max(answer.published_s for answer in answers.values())
        refusal, silence_s = self._statistics.refusal, now_s - last_s
        refused = NO_REASON
        if refusal and (stale or silence_s > patience_s):
            refused = ReasonCode.NO_USABLE_IMAGE.reason(silence_s=silence_s, fault=refusal)
        reason = refused or stale or stalled
        for answer in answers.values():
            # An answer that is much older than the newest belongs to a target that had no turn: not all
            # targets are processed in each image.
            if reason or last_s - answer.published_s > patience_s:
                self._take_back(answer, reason, now_s)
        if reason and reason is stale:
            # Only the first of the possible causes is logged.
            loss = self._statistics.loss(now_s)
            slow = self._statistics.slow(now_s, self._timeout_s)
            why = loss or slow or self._receiver.input.explain(have_come=True)
            self._log.remind("loss" if loss else why, f"{stale}; {why}")

    def _take_back(self, answer: PublishedAnswer, reason: Reason, now_s: float) -> None:
        """Publish an answer again with valid = false.

        ``reason``: why no target can be followed at present; empty if only this target was not processed,
        because it had no turn.
        """
        track, silence_s = answer.track, now_s - answer.arrived_s
        now = replace(track, age_s=track.age_s + silence_s)
        if reason:
            now = replace(now, state=state_after(track, silence_s, self._tracker_config), reason=reason)
        why = reason or ReasonCode.NO_TURN.reason(silence_s=silence_s)
        if self._outputs.take_back(answer, why, now_s, now) and reason:
            self._exchange.show_state(now, answer.about.target_id)

    def _stalled(self, now_s: float, patience_s: float) -> Reason:
        """Return the reason STALLED if an image waits too long for the loop; else an empty reason.

        ``patience_s``: the longest time that an image may wait, s.
        """
        waiting_s = self._buffer.waiting_s(now_s)
        if not any(answer.track.state in STEERABLE for answer in self._outputs.table.answers.values()):
            patience_s = max(patience_s, STALL_PATIENCE_S)
        return ReasonCode.STALLED.reason(waiting_s=waiting_s) if waiting_s > patience_s else NO_REASON


class Session:
    """Receives, tracks and publishes from construction until `close`.

    Only the executor's thread uses this object. ``thread``: executor of the loop's thread, in which the
    pipeline was opened. ``accepted``: number of selections accepted since the node started.
    """

    def __init__(
        self,
        node: Node,
        targets: TargetSet,
        exchange: Exchange,
        config: NodeConfig,
        accepted: int,
        thread: Executor,
    ) -> None:
        self._buffer, self._outputs = exchange.buffer, exchange.outputs
        self._outputs.begin(exchange.statistics.targets)
        with ExitStack() as made:  # if a part can't be made, the parts made before it are closed
            subscriptions = Subscriptions(node, partial(exchange.statistics.fault, "qos"))
            made.callback(subscriptions.close)
            self._receiver = Receiver(node, exchange, config, subscriptions, targets.prefetch)
            made.callback(self._receiver.close)
            explain = self._receiver.explain_no_image
            self.selections = Selections(
                exchange, config, subscriptions, explain, accepted, targets.max_targets
            )
            self._watch = SilenceWatch(node, exchange, config, targets.config, self._receiver)
            made.callback(self._watch.close)
            self._running = thread.submit(_supervise, TrackingLoop(targets, exchange), exchange)
            self._made = made.pop_all()

    @property
    def renewal(self) -> str:
        """Why this process should become another DDS participant, see `ImageInput.renewal`; else empty."""
        return self._receiver.input.renewal

    @property
    def image_topic(self) -> str:
        return self._receiver.input.topic

    def reconfigure(self, config: NodeConfig, tracker_config: TrackerConfig) -> None:
        """Apply settings that may change while the node is active. ``tracker_config`` applies from the next
        image on."""
        self._buffer.limit(config.selection_buffer, config.selection_buffer_bytes, config.image_timeout)
        self._buffer.reconfigure(tracker_config)
        self.selections.config = config
        self._receiver.reconfigure(config)
        self._watch.reconfigure(config, tracker_config)

    def close(self, reason: Reason) -> None:
        """Stop receiving, and finish and publish the current frame. Then publish all answers with valid =
        false and this reason, and refuse the commands that still wait."""
        self._outputs.end(reason)
        try:
            self._made.close()
        finally:
            pending = self._buffer.close()
            wait([self._running])
        self._outputs.end(reason)
        for command in pending:
            self._outputs.publish_result(command, Outcome.REFUSED, reason)


def _supervise(loop: TrackingLoop, exchange: Exchange) -> None:
    """Run the loop until its buffer is closed.

    If an unforeseen error ends the loop, it is started again without targets, because their state may be half
    updated.
    """
    while True:
        try:
            loop.run()
            return
        except Exception as error:
            exchange.statistics.failed(f"{type(error).__name__}: {error}")
            exchange.log.fail("failure", "".join(traceback.format_exception(error)).rstrip())
            loop.abandon(internal_error(error, advice="; select the target again"))
            time.sleep(RESTART_S)
