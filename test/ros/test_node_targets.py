"""Several targets on the real middleware, the node in a process of its own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from diagnostic_msgs.msg import DiagnosticStatus
from efftam_ros.msg import BoundingBox, SelectionResult, TargetSelection, Tracks
from efftam_ros.srv import ClearTarget, SteerTarget
from level_pipeline import HEIGHT, WIDTH
from ros_helpers import CLEARED, box_of, box_selection, image_message, stamp_of
from sensor_msgs.msg import Image
from std_msgs.msg import UInt8

from efftam_ros.core.geometry import Box, iou
from efftam_ros.images.message import stamp_ns

pytestmark = pytest.mark.ros
QUICK = ("-p", "image_timeout:=60.0", "-p", "diagnostics_period:=0.1")
SIDE = 24


def place(k: int, i: int) -> Box:
    """Where square ``k`` is in image ``i``: they lie in two rows and move slowly, to and fro."""
    return Box(12.0 + 76 * (k % 4) + abs((i + 40) % 80 - 40), 40.0 + 110 * (k // 4), SIDE, SIDE)


def squares(i: int, count: int, where=place, hidden=()) -> np.ndarray:
    """Image ``i`` with so many squares, each of a grey level of its own."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for k in range(count):
        x, y, w, h = (int(v) for v in where(k, i).xywh())
        if k not in hidden:
            image[y : y + h, x : x + w] = 30 * (k + 1)
    return image


class Several:
    """A tracker, and a scene with so many squares."""

    def __init__(self, peer, count: int, where=place) -> None:
        self.peer, self.count, self.where, self.i = peer, count, where, 0
        self.hidden: set[int] = set()
        self.lists: dict[int, Tracks] = {}  # by stamp
        peer.node.create_subscription(
            Tracks, "tracks", lambda m: self.lists.update({stamp_ns(m.header.stamp): m}), 10
        )
        self.steer_client = peer.node.create_client(SteerTarget, "efftam_tracker/steer_target")
        peer.wait(self.steer_client.service_is_ready, "the service steer_target")
        while not self.lists:  # until the tracker knows of the subscription
            self.send()
            peer.spin_for(0.1)
        peer.forget()

    @property
    def picture(self) -> np.ndarray:
        return squares(self.i, self.count, self.where, self.hidden)

    def send(self) -> int:
        """The next image; returns its stamp."""
        self.i += 1
        self.peer.images.publish(image_message(self.picture, stamp_of(self.i)))
        return stamp_of(self.i)

    def boxes(self, stamp: int) -> list[BoundingBox]:
        return [box for box in self.peer.boxes if stamp_ns(box.header.stamp) == stamp]

    def show(self, targets: int) -> dict[int, BoundingBox]:
        """Images until one is answered for so many targets, as there may be no time for all; its boxes, in
        the order in which they come."""
        for _ in range(50):
            stamp = self.send()
            self.peer.wait(lambda s=stamp: s in self.lists, f"the list of image {self.i}")
            listed = [box for box in self.lists[stamp].targets if stamp_ns(box.header.stamp) == stamp]
            count = max(1, len(listed))
            for messages in (self.peer.boxes, self.peer.velocities):
                self.peer.wait(
                    lambda m=messages, s=stamp, c=count: (
                        sum(stamp_ns(one.header.stamp) == s for one in m) == c
                    ),
                    f"{count} boxes and velocities of image {self.i}",
                )
            if count >= targets:
                return {box.target_id: box for box in self.boxes(stamp)}
            self.peer.spin_for(0.1)
        raise AssertionError(f"no image was answered for {targets} targets")

    def add(self, k: int, target_id: int = 255, i: int | None = None):
        """Select square ``k``, by default in the newest image; returns the service's answer."""
        i = self.i if i is None else i
        return self.peer.select(box_selection(self.where(k, i), stamp_of(i), target_id=target_id))

    def follow(self, targets: int) -> None:
        """Select so many squares one after the other, until all are TRACKING."""
        self.show(1)
        for k in range(targets):
            answer = self.add(k)
            assert (answer.success, answer.target_id) == (True, k), answer.message
            self.peer.box_of_selection(answer.selection)
        for _ in range(100):
            self.show(1)
            newest = {box.target_id: box.state for box in self.peer.boxes}
            if list(newest.values()) == [BoundingBox.TRACKING] * targets:
                return
        raise AssertionError(f"not all are followed: {newest}")

    def steer(self, target_id: int):
        return self.peer.call(self.steer_client, SteerTarget.Request(target_id=target_id))

    def clear(self, target_id: int):
        return self.peer.call(self.peer.clear_client, ClearTarget.Request(target_id=target_id))

    def is_on(self, box: BoundingBox, k: int) -> bool:
        """Whether a box is on square ``k``, in the image that it answers."""
        i = (stamp_ns(box.header.stamp) - stamp_of(0)) // (stamp_of(1) - stamp_of(0))
        return iou(box_of(box), self.where(k, i)) > 0.8

    def result(self, condition, what: str) -> SelectionResult:
        self.peer.wait(lambda: any(map(condition, self.peer.results)), what)
        return next(filter(condition, self.peer.results))


@pytest.fixture
def several(tracker):
    """Start a tracker: ``several(squares, followed, "-p", "max_targets:=8")``."""

    def start(count, followed, *arguments, where=place, **how):
        scene = Several(tracker(*QUICK, *arguments, **how), count, where)
        scene.follow(followed)
        scene.peer.forget()
        return scene

    return start


def test_boxes_come_in_order_of_id_and_velocities_with_the_steered_one_first(several):
    scene = several(3, 3)
    assert scene.steer(1).success
    scene.show(3)
    scene.peer.forget()
    scene.show(3)
    boxes, velocities = scene.peer.boxes, scene.peer.velocities
    assert [box.target_id for box in boxes] == [0, 1, 2]
    assert [velocity.target_id for velocity in velocities] == [1, 0, 2]
    assert {stamp_ns(message.header.stamp) for message in (*boxes, *velocities)} == {stamp_of(scene.i)}
    assert [message.target_id for message in (*boxes, *velocities) if message.steered] == [1, 1]


@pytest.mark.parametrize("what", ["clear", "steer", "select CLEAR", "steer by topic"])
def test_an_id_that_is_not_there_is_refused_with_those_that_are(several, what):
    scene = several(2, 2)
    said = "there is no target 5; targets: 0, 1"
    if what == "clear":
        assert said in scene.clear(5).message
    elif what == "steer":
        assert said in scene.steer(5).message
    elif what == "select CLEAR":
        assert said in scene.peer.select(TargetSelection(kind=TargetSelection.CLEAR, target_id=5)).message
    else:
        topic = scene.peer.node.create_publisher(UInt8, "steer_target", 10)
        scene.peer.wait(lambda: topic.get_subscription_count() > 0, "the subscription to steer_target")
        topic.publish(UInt8(data=5))
        refused = scene.result(lambda r: r.outcome == SelectionResult.REFUSED, "the refusal")
        assert said in refused.message
    boxes = scene.show(2)
    assert [(key, box.steered) for key, box in boxes.items()] == [(0, True), (1, False)]


def test_one_target_is_cleared_and_the_others_go_on(several):
    scene = several(3, 3)
    assert scene.clear(1).success
    cleared = scene.result(lambda r: r.outcome == SelectionResult.CLEARED, "the result")
    assert cleared.target_id == 1
    scene.peer.wait(lambda: any(box.reason == CLEARED for box in scene.peer.boxes), "the announcement")
    (announced,) = [box for box in scene.peer.boxes if box.reason == CLEARED]
    assert (announced.target_id, announced.state, announced.valid) == (1, BoundingBox.IDLE, False)
    assert list(scene.show(2)) == [0, 2]
    assert scene.clear(255).success
    assert scene.result(lambda r: r.target_id == 255, "the result").outcome == SelectionResult.CLEARED
    ((target_id, box),) = scene.show(1).items()
    assert (target_id, box.state, box.steered) == (0, BoundingBox.IDLE, True)
    assert "no target to clear" in scene.clear(255).message


def test_once_the_steered_target_is_cleared_nothing_is_to_be_steered_by(several):
    scene = several(2, 2)
    assert scene.clear(0).success
    scene.peer.wait(lambda: scene.peer.velocities, "the announcement")
    assert (scene.peer.velocities[0].steered, scene.peer.velocities[0].valid) == (True, False)
    boxes = scene.show(1)
    assert [(key, box.valid, box.steered) for key, box in boxes.items()] == [(1, True, False)]
    assert scene.steer(1).success
    assert scene.show(1)[1].steered


@pytest.mark.parametrize("how", ["clear", "select CLEAR"])
def test_target_0_is_cleared_by_its_id_also_while_another_is_steered_by(several, how):
    scene = several(2, 2)
    assert scene.steer(1).success
    if how == "clear":
        assert scene.clear(0).success
    else:
        assert scene.peer.select(TargetSelection(kind=TargetSelection.CLEAR)).success
    cleared = scene.result(lambda r: r.outcome == SelectionResult.CLEARED, "the result")
    assert cleared.target_id == 0
    ((target_id, box),) = scene.show(1).items()
    assert (target_id, box.steered, box.valid) == (1, True, True)
    # Without a target 0 it is the steered one.
    assert scene.clear(0).success
    assert scene.result(lambda r: r.target_id == 1, "the result").outcome == SelectionResult.CLEARED


def test_a_switch_while_the_steered_target_coasts(several):
    scene = several(2, 2)
    scene.hidden = {0}
    for _ in range(3):
        boxes = scene.show(2)
    assert [box.state for box in boxes.values()] == [BoundingBox.COASTING, BoundingBox.TRACKING]
    topic = scene.peer.node.create_publisher(UInt8, "steer_target", 10)
    scene.peer.wait(lambda: topic.get_subscription_count() > 0, "the subscription to steer_target")
    topic.publish(UInt8(data=1))
    scene.peer.diagnosis(lambda s, v: v.get("steered target") == "1", "the switch")
    boxes = scene.show(2)
    assert [(box.state, box.steered) for box in boxes.values()] == [
        (BoundingBox.COASTING, False),
        (BoundingBox.TRACKING, True),
    ]
    assert "steered by target 1 (before: 0)" in scene.peer.process.output


def test_late_selections_of_several_targets_on_different_images_at_once(several):
    scene = several(3, 1)
    for _ in range(20):
        scene.show(1)
    scene.peer.forget()
    begins = {1: scene.i - 12, 2: scene.i - 5}
    numbers = {k: scene.add(k, i=i).selection for k, i in begins.items()}
    for _ in range(5):
        boxes = scene.show(3)
    assert [box.valid for box in boxes.values()] == [True] * 3
    for k, number in numbers.items():
        of_target = [box for box in scene.peer.boxes if box.target_id == k]
        stamps = [stamp_ns(box.header.stamp) for box in of_target]
        assert stamps[0] == stamp_of(begins[k])
        assert stamps == sorted(set(stamps))
        assert {box.selection for box in of_target} == {number}
        assert all(scene.is_on(box, k) for box in of_target)
        assert not any(box.valid for box in of_target if "behind the camera" in box.reason)
        assert "behind the camera" in of_target[0].reason
    # The first one is followed on, in the newest images.
    stamps = [stamp_ns(box.header.stamp) for box in scene.peer.boxes if box.target_id == 0]
    assert stamps == sorted(set(stamps))
    assert all(box.valid for box in scene.peer.boxes if box.target_id == 0)


def test_a_target_that_is_cleared_while_its_selection_catches_up(several, tmp_path):
    stall = tmp_path / "stall"
    scene = several(2, 1, stall=stall)
    for _ in range(20):
        scene.show(1)
    scene.peer.forget()
    stall.touch()
    begin = scene.i - 15
    late = scene.add(1, i=begin)
    scene.peer.wait(stall.with_suffix(".reached").exists, "its first image to be in work")
    assert scene.clear(late.target_id).success
    stall.unlink()
    scene.peer.wait(lambda: any(box.reason == CLEARED for box in scene.peer.boxes), "the announcement")
    assert list(scene.show(1)) == [0]
    of_target = [box for box in scene.peer.boxes if box.target_id == late.target_id]
    assert [stamp_ns(box.header.stamp) for box in of_target] == [stamp_of(begin)] * 2
    assert [box.state for box in of_target] == [BoundingBox.ACQUIRING, BoundingBox.IDLE]
    assert [result.outcome for result in scene.peer.results] == [
        SelectionResult.ACCEPTED,
        SelectionResult.CLEARED,
    ]


def test_of_eight_targets_on_a_slow_tracker_the_steered_one_is_in_each_image_and_the_others_take_turns(
    several,
):
    scene = several(8, 8, "-p", "max_targets:=8", delay_s=0.04)
    for _ in range(60):  # an image takes 0.32 s for all of them
        scene.send()
        scene.peer.spin_for(0.1)
    status, values = scene.peer.diagnosis(
        lambda s, v: "of 8 targets are processed in an image" in s.message, "the turns"
    )
    assert status.level == DiagnosticStatus.WARN
    assert "of 8 targets" in values["targets per image"]
    newest = sorted({stamp_ns(box.header.stamp) for box in scene.peer.boxes})[-12:-1]
    processed = [{box.target_id for box in scene.boxes(stamp)} for stamp in newest]
    assert all(0 in ids and 2 <= len(ids) < 8 for ids in processed)
    assert set(itertools.chain(*processed)) == set(range(8))


def test_when_images_stop_the_last_answer_of_each_target_is_taken_back(several):
    scene = several(3, 3, "-p", "image_timeout:=0.6")
    last = scene.show(3)
    scene.peer.forget()
    scene.peer.wait(
        lambda: {v.target_id for v in scene.peer.velocities if "no image for" in v.reason} == {0, 1, 2},
        "all to be taken back",
    )
    for velocity in scene.peer.velocities:
        if "no image for" in velocity.reason:
            assert not velocity.valid
            assert velocity.header.stamp == last[velocity.target_id].header.stamp
            assert velocity.steered == (velocity.target_id == 0)


def test_all_targets_are_in_one_list_one_label_image_and_in_the_diagnostics(several):
    scene = several(3, 3)
    labels = []
    scene.peer.node.create_subscription(Image, "mask_labels", labels.append, 10)
    while not labels:
        scene.show(3)
    scene.show(3)
    newest = stamp_of(scene.i)
    scene.peer.wait(lambda: stamp_ns(labels[-1].header.stamp) == newest, "the label image")
    assert scene.lists[newest].steered == 0
    assert list(map(str, scene.lists[newest].targets)) == list(map(str, scene.boxes(newest)))
    picture = np.frombuffer(labels[-1].data, np.uint8).reshape(HEIGHT, WIDTH)
    for k in range(3):
        place_of = scene.where(k, scene.i)
        assert picture[int(place_of.cy), int(place_of.cx)] == k + 1
    assert picture[HEIGHT - 1, WIDTH - 1] == 0
    _, values = scene.peer.diagnosis(lambda s, v: "target 2" in v, "each target")
    assert [values[f"target {k}"] for k in range(3)] == ["TRACKING"] * 3
    assert all(float(values[f"target {k} (ms)"]) > 0.0 for k in range(3))
    assert float(values["memory per target (MB)"]) == 0.0  # this test's pipeline has none
    assert (values["steered target"], values["targets per image"]) == ("0", "all")
