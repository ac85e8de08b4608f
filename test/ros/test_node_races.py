"""The tracker's node under load: images, commands, settings and transitions from several threads at once."""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

import pytest
from efftam_ros.msg import BoundingBox, SelectionResult, TargetSelection, TargetVelocity
from efftam_ros.srv import ClearTarget, SelectTarget, SteerTarget
from flight_rig import wait
from level_pipeline import LevelPipeline, bright_box, grey_box, scene
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from ros_helpers import box_selection, image_message, new_namespace, stamp_of

from efftam_ros.ros.tracker.loop import TrackingLoop
from efftam_ros.ros.tracker.node import TrackerNode

IMAGES, COMMANDS, SETTINGS, TRANSITIONS = 600, 150, 60, 12
SUCCESS = TransitionCallbackReturn.SUCCESS
FOLLOWED = (BoundingBox.ACQUIRING, BoundingBox.TRACKING, BoundingBox.COASTING)
TAKEN_BACK = ("no image for", "the network has not answered for", "no image could be used")


class Uneven(LevelPipeline):
    """Takes up to 4 ms a frame."""

    def _compute(self, image, frame):
        super()._compute(image, frame)
        time.sleep(random.random() * 0.004)


class Rig:
    """A node that spins in a thread of its own. What is done to it is done there, as by its subscriptions and
    services; what it publishes is kept in the order in which it is published."""

    def __init__(self) -> None:
        values = {"autostart": False, "image_timeout": 0.02, "diagnostics_period": 0.1}
        overrides = [Parameter(name, value=value) for name, value in values.items()]
        self.node = TrackerNode(
            lambda *asked: Uneven(max_targets=4), namespace=new_namespace(), parameter_overrides=overrides
        )
        self.published: dict[type, list] = {BoundingBox: [], TargetVelocity: [], SelectionResult: []}
        self.shown = 1  # images sent, numbered from 1
        self.asked = 0  # commands that the services took
        assert self.node.trigger_configure() == SUCCESS
        for publisher in self.node.publishers:
            if publisher.msg_type in self.published:
                publisher.publish = self.published[publisher.msg_type].append
        assert self.node.trigger_activate() == SUCCESS
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.ended = False
        self.thread = threading.Thread(target=self.spin)
        self.thread.start()

    def spin(self) -> None:
        while not self.ended:
            self.executor.spin_once(timeout_sec=0.1)

    def do(self, function, *args):
        """Run a function in the executor's thread; returns what it returns and raises what it raises."""
        done: Future = Future()

        def run() -> None:
            try:
                done.set_result(function(*args))
            except BaseException as error:
                done.set_exception(error)

        self.executor.create_task(run)
        return done.result(30.0)

    def close(self) -> None:
        self.ended = True
        self.executor.wake()
        self.thread.join()
        self.executor.shutdown()
        self.node.close()

    def show(self) -> None:
        i, self.shown = self.shown, self.shown + 1
        encoding = "bgr8" if i % 20 else "no_such_encoding"
        message = image_message(scene(i % 40), stamp_of(i), encoding)
        for subscription in list(self.node.subscriptions):
            if subscription.topic_name.endswith("/image"):
                subscription.callback(message)

    def service(self, name: str):
        (found,) = (s for s in self.node.services if s.srv_name.endswith(name))
        return found.callback

    def select(self, back: int, target_id: int = 0) -> None:
        """Select a target on the image so many before the newest; a negative one names no image."""
        i = max(0, self.shown - 1 - back)
        place = (grey_box if target_id else bright_box)(i % 40)
        selection = box_selection(place, stamp_of(i) if back >= 0 else 0, target_id=target_id)
        request = SelectTarget.Request(selection=selection)
        self.asked += self.service("select_target")(request, SelectTarget.Response()).success

    def steer(self, target_id: int) -> None:
        self.service("steer_target")(SteerTarget.Request(target_id=target_id), SteerTarget.Response())

    def clear(self, by_service: bool, target_id: int = 0) -> None:
        if by_service:
            request = ClearTarget.Request(target_id=target_id)
            self.asked += self.service("clear_target")(request, ClearTarget.Response()).success
        else:
            request = SelectTarget.Request(selection=TargetSelection(kind=TargetSelection.CLEAR))
            self.asked += self.service("select_target")(request, SelectTarget.Response()).success

    def configure(self, lost_after: float, timeout: float) -> None:
        values = {"lost_after": lost_after, "image_timeout": timeout, "selection_buffer": 1.0 + lost_after}
        for result in self.node.set_parameters([Parameter(n, value=v) for n, v in values.items()]):
            assert result.successful, result.reason

    def restart(self) -> None:
        assert self.node.trigger_deactivate() == SUCCESS
        counts = {kind: len(messages) for kind, messages in self.published.items()}
        for kind in (BoundingBox, TargetVelocity):
            lasts = {message.target_id: message for message in self.published[kind][-4:]}
            assert {message.valid for message in lasts.values()} == {False}
            assert self.published[kind][-1].reason == "the node was deactivated"
        time.sleep(0.01)
        assert counts == {kind: len(messages) for kind, messages in self.published.items()}
        assert self.node.trigger_activate() == SUCCESS


@pytest.fixture
def rig(ros):
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads take turns 500 times as often
    rig = Rig()
    yield rig
    rig.close()
    sys.setswitchinterval(interval_s)


def drive(rig: Rig) -> None:
    """All at once, from a thread each."""
    dice = random.Random(1)
    busy = threading.Event()
    busy.set()

    def images() -> None:
        for _ in range(IMAGES):
            rig.do(rig.show)
            # Now and then longer than image_timeout.
            time.sleep(0.03 if dice.random() < 0.1 else dice.random() * 0.004)
        busy.clear()

    def repeated(count: int, *steps) -> None:
        for _ in range(count):
            if not busy.is_set():
                return
            function, *args = dice.choice(steps)
            rig.do(function, *args)
            time.sleep(dice.random() * 2 * IMAGES * 0.006 / count)

    work = [
        (images,),
        (repeated, COMMANDS, *((rig.select, back) for back in (-1, 0, 1, 3, 10))),
        (repeated, COMMANDS // 2, *((rig.select, back, key) for back in (0, 3) for key in (1, 7, 255))),
        (repeated, COMMANDS // 4, *((rig.clear, True, key) for key in (0, 1, 255)), (rig.clear, False)),
        (repeated, COMMANDS // 4, *((rig.steer, key) for key in (0, 1, 2, 7))),
        (repeated, SETTINGS, *((rig.configure, s, t) for s in (0.2, 2.0) for t in (0.02, 0.05))),
        (repeated, TRANSITIONS, (rig.restart,)),
    ]
    with ThreadPoolExecutor(len(work)) as threads:
        for done in [threads.submit(function, *args) for function, *args in work]:
            done.result(120.0)


def test_whatever_comes_at_once_answers_keep_their_order_and_every_command_gets_one_outcome(rig):
    rig.do(rig.show)
    wait(lambda: rig.published[BoundingBox] and rig.published[TargetVelocity], "the first answer")
    drive(rig)
    rig.do(rig.restart)
    rig.do(rig.node.trigger_deactivate)
    assert rig.node._statistics.verdict(0.0, rig.node._setup, 1.0).values["last internal error"] == ""
    for kind in (BoundingBox, TargetVelocity):
        messages = rig.published[kind]
        assert len(messages) > IMAGES / 4
        for target_id in {message.target_id for message in messages}:
            of_target = [message for message in messages if message.target_id == target_id]
            selections = [message.selection for message in of_target if message.selection]
            assert selections == sorted(selections), (
                "an answer to an older selection came after a newer one's"
            )
        assert len({message.selection for message in messages}) > COMMANDS / 10
    # Of each target in their order. A box may wait for those of other targets; a velocity never does.
    velocities = sorted(rig.published[TargetVelocity], key=lambda velocity: velocity.target_id)
    taken_back = [
        (before, after)
        for before, after in pairwise(velocities)
        if before.target_id == after.target_id
        and after.reason.startswith(TAKEN_BACK)
        and after.state in FOLLOWED
        and math.isnan(after.center_x)
    ]
    assert taken_back
    for before, after in taken_back:
        # The last answer once more, never one from before it.
        assert (after.header.stamp, after.selection) == (before.header.stamp, before.selection)
    outcomes = [r.outcome for r in rig.published[SelectionResult]]
    refused_by_service = len(outcomes) - rig.asked
    assert 0 <= refused_by_service <= outcomes.count(SelectionResult.REFUSED)
    assert outcomes.count(SelectionResult.ACCEPTED) > COMMANDS / 10


def test_an_error_that_ends_the_loop_drops_the_target_and_is_told_and_the_loop_goes_on(tracker, monkeypatch):
    peer = tracker("-p", "image_timeout:=60.0", "-p", "diagnostics_period:=0.1")
    peer.show(0)
    peer.follow(0, bright_box(0))
    process = TrackingLoop._process
    planted = iter([RuntimeError("planted")])

    def raises_once(loop, *task):
        for error in planted:
            raise error
        process(loop, *task)

    monkeypatch.setattr(TrackingLoop, "_process", raises_once)
    peer.images.publish(image_message(scene(1), stamp_of(1)))
    peer.wait(lambda: peer.boxes[-1].state == BoundingBox.IDLE, "the target to be dropped")
    assert "planted" in peer.boxes[-1].reason
    peer.wait(
        lambda: any("planted" in d.message and d.level == b"\x02" for d in peer.diagnostics), "the error"
    )
    peer.show(2)
    peer.follow(2, bright_box(2))
    assert peer.show(3).state != BoundingBox.IDLE
