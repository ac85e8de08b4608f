"""Commands of a page: taking the seat, selecting, clearing and steering. Each gets one answer.

The *seat* is the right to command, which one page has at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from efftam_operator import wire
from efftam_operator.feed import CommandAnswer, Feed, Follower, Reply, Steerer
from efftam_operator.hub import Hub
from efftam_operator.settings import Settings
from efftam_operator.viewer import Viewer
from efftam_ros.core.errors import InputError

# Enabling takes two presses. The second must come at least ARMED_FROM_S after the first, so that a double
# click enables nothing, and at most ARMED_FOR_S after it.
ARMED_FROM_S = 0.3
ARMED_FOR_S = 5.0
# For this time after an enable command the gimbal counts as steered, s. By then the controller's status has
# arrived, which shows whether the gimbal is steered.
STATUS_S = 1.0
CONTROLLER = "the gimbal's controller"
BRIDGE = "the MAVLink bridge"


class Seat:
    """The right to command, which one viewer (named by a text) has at a time.

    Every message of the holder renews its lease. A holder that sent nothing for ``lease_s`` seconds loses the
    seat. ``now_s`` of every method comes from one monotonic clock.
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._holder: str | None = None
        self._renewed_s = 0.0

    def holder(self, now_s: float) -> str | None:
        """Return the name of the viewer that may command; None if no viewer has the seat."""
        if self._holder is not None and now_s - self._renewed_s > self.lease_s:
            self._holder = None
        return self._holder

    def take(self, viewer: str, now_s: float) -> None:
        """Give the right to command to ``viewer``, even if another viewer has it."""
        self._holder, self._renewed_s = viewer, now_s

    def renew(self, viewer: str, now_s: float) -> None:
        if self.holder(now_s) == viewer:
            self._renewed_s = now_s

    def release(self, viewer: str) -> bool:
        """Take the right to command from ``viewer``. Returns whether ``viewer`` had it."""
        held = self._holder == viewer
        if held:
            self._holder = None
        return held


class Commands:
    """Checks whether a page may give a command, and passes the command to the feed."""

    def __init__(
        self,
        feed: Feed,
        steering: Steerer | None,
        hub: Hub,
        settings: Settings,
        following: Follower | None = None,
    ) -> None:
        self.seat = Seat(settings.lease_s)
        self._feed, self._steering, self._following = feed, steering, following
        self._hub, self._settings = hub, settings
        self._vacant_since_s: float | None = None
        self._sent_holder: str | None = None
        self._enabled_s = float("-inf")
        self._handlers: dict[str, Callable[[Viewer, wire.Message], None]] = {
            "select": self._select,
            "clear": self._clear,
            "steer_by": self._steer_by,
            "seat": self._take_seat,
        }

    def joined(self, viewer: Viewer) -> str:
        """Register a page that was opened; it gets the right to command if no page has it.

        Returns the page's role: "operator" if it may command, else "viewer".
        """
        now_s = time.monotonic()
        if self.seat.holder(now_s) is None:
            self.seat.take(viewer.name, now_s)
            self.watch_seat()
        return "operator" if self.seat.holder(now_s) == viewer.name else "viewer"

    def left(self, viewer: Viewer) -> None:
        if self.seat.release(viewer.name):
            self.watch_seat()

    def on_message(self, viewer: Viewer) -> None:
        self.seat.renew(viewer.name, time.monotonic())

    def watch_seat(self) -> None:
        """Report to all pages which page may command, if that has changed, and apply ``on_operator_lost``.

        Must be called every second, and when the seat was taken or released.
        """
        now_s = time.monotonic()
        holder = self.seat.holder(now_s)
        if holder != self._sent_holder:
            if holder is None:
                self._vacant_since_s = now_s
            self._sent_holder = holder
            self._hub.send_to_all({"op": "seat", "holder": holder})
        since_s = self._vacant_since_s
        if holder is None and since_s is not None and now_s - since_s >= self.seat.lease_s:
            self._vacant_since_s = None
            if self._settings.on_operator_lost == "clear":
                self._disarm(None)
                self._feed.clear(wire.MAX_TARGET, lambda answer: None)

    def carry_out(self, viewer: Viewer, message: wire.Message) -> None:
        """Carry out a page's request. A request that is not allowed is answered with the reason."""
        if message.op in ("hold", "propose"):
            self._draw(viewer, message)
            return
        # Enabling takes two presses. Any other command between them cancels the first press.
        armed, viewer.armed = viewer.armed, ("", float("-inf"))
        try:
            if message.op in ("steer", "follow"):
                self._switch(viewer, message, armed[1] if armed[0] == message.op else float("-inf"))
            else:
                self._handlers[message.op](viewer, message)
        except InputError as refusal:
            self.answer(viewer, message.id, CommandAnswer(False, str(refusal)))

    def _take_seat(self, viewer: Viewer, message: wire.Message) -> None:
        if message.action == "take":
            self.seat.take(viewer.name, time.monotonic())
        else:
            self.seat.release(viewer.name)
        self.watch_seat()

    def _select(self, viewer: Viewer, message: wire.Message) -> None:
        self._require_seat(viewer)
        if not viewer.selections.allows(time.monotonic()):
            most = f"{self._settings.selections_per_s:g} selections in a second"
            raise InputError(f"this page has sent more than {most}; wait for a second and select again")
        if not message.turns and self._would_turn(message.selection.target_id):
            raise InputError(
                "the gimbal is steered and would turn to the new target; draw again and confirm the turn"
            )
        self._feed.select(message.selection, self._reply(viewer, message.id))

    def _draw(self, viewer: Viewer, message: wire.Message) -> None:
        """Carry out "hold" or "propose", which a page sends while its user draws.

        Requests of pages that may not command are ignored, because the tracker keeps only one image at a time
        for a drawing.
        """
        if self.seat.holder(time.monotonic()) != viewer.name:
            return
        if message.op == "hold":
            self._feed.hold(message.stamp_ns)
        else:
            self._feed.propose(message.selection)

    def _clear(self, viewer: Viewer, message: wire.Message) -> None:
        self._require_seat(viewer)
        steered = self._hub.steered_target
        if steered is None or message.target_id in (wire.MAX_TARGET, steered):
            self._disarm(viewer)
        self._feed.clear(message.target_id, self._reply(viewer, message.id))

    def _steer_by(self, viewer: Viewer, message: wire.Message) -> None:
        self._require_seat(viewer)
        if self._is_steered and not message.turns:
            raise InputError(
                f"the gimbal is steered and would turn to target {message.target_id}; confirm the turn"
            )
        self._feed.steer_by(message.target_id, self._reply(viewer, message.id))

    def _switch(self, viewer: Viewer, message: wire.Message, armed_s: float) -> None:
        """Arm, enable or stop steering of the gimbal (op "steer") or following by the vehicle (op "follow").

        Every page may stop; only the page with the right to command may arm and enable. ``armed_s``:
        monotonic time of the first press, s; -inf if there was none.
        """
        is_gimbal = message.op == "steer"
        whose = CONTROLLER if is_gimbal else BRIDGE
        switched = self._steering if is_gimbal else self._following
        if switched is None:
            raise InputError(f"no {'gimbal controller' if is_gimbal else 'MAVLink bridge'} runs here")
        now_s = time.monotonic()
        if message.action == "stop":
            stop = partial(self._stop, switched) if is_gimbal else switched.stop
            stop(self._reply(viewer, message.id, whose))
            return
        self._require_seat(viewer)
        if message.action == "arm":
            viewer.armed = (message.op, now_s)
            self.answer(viewer, message.id, CommandAnswer(True))
            return
        if not ARMED_FROM_S <= now_s - armed_s <= ARMED_FOR_S:
            limits = f"{ARMED_FROM_S:g} to {ARMED_FOR_S:g} s after the first"
            raise InputError(f"the button must be pressed twice, the second time {limits}; press it again")
        enable = partial(self._enable, switched) if is_gimbal else switched.enable
        enable(self._reply(viewer, message.id, whose))

    @property
    def _is_steered(self) -> bool:
        return self._hub.is_steered or time.monotonic() - self._enabled_s < STATUS_S

    def _would_turn(self, target_id: int) -> bool:
        """Return whether a selection for this target would turn the gimbal.

        A selection that adds another target beside the steered one does not.
        """
        steered = self._hub.steered_target
        return self._is_steered and (steered is None or target_id in (0, steered))

    def _stop(self, steering: Steerer, reply: Reply) -> None:
        self._enabled_s = float("-inf")
        steering.stop(reply)

    def _enable(self, steering: Steerer, reply: Reply) -> None:
        self._enabled_s = time.monotonic()

        def answered(answer: CommandAnswer) -> None:
            if not answer.ok:
                self._enabled_s = float("-inf")
            reply(answer)

        steering.enable(answered)

    def _disarm(self, viewer: Viewer | None) -> None:
        """Stop the gimbal if it is steered.

        This is done before a target is cleared: the next selection must not turn the gimbal. ``viewer``: page
        that receives the controller's answer; None: the answer is dropped.
        """
        if self._steering is not None and self._is_steered:
            reply = self._reply(viewer, "", CONTROLLER) if viewer is not None else lambda answer: None
            self._stop(self._steering, reply)

    def _require_seat(self, viewer: Viewer) -> None:
        """Give ``viewer`` the right to command if no page has it. Raises InputError if another one has it."""
        now_s = time.monotonic()
        holder = self.seat.holder(now_s)
        if holder is None:
            self.seat.take(viewer.name, now_s)
            self.watch_seat()
        elif holder != viewer.name:
            raise InputError(f"view only: {holder} is in control; take over first")

    def _reply(self, viewer: Viewer, id: str, whose: str = "the tracker") -> Reply:
        """Return the callback by which the feed answers one command; it may be called from any thread.

        The first call sends the answer to the page. If there is no call within the setting ``answer_s``, the
        page gets an error instead. ``whose``: name of the answering program in that error.
        """
        loop = asyncio.get_running_loop()
        pending = [True]

        def finish(answer: CommandAnswer) -> None:
            if pending:
                pending.clear()
                timer.cancel()
                self.answer(viewer, id, answer)

        silence = CommandAnswer(
            False, f"no answer from {whose} within {self._settings.answer_s:g} s; check whether it runs"
        )
        timer = loop.call_later(self._settings.answer_s, finish, silence)

        def reply(answer: CommandAnswer) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, answer)

        return reply

    def answer(self, viewer: Viewer, id: str, answer: CommandAnswer) -> None:
        viewer.send({**wire.report_message(answer), "id": id})
