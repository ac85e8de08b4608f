"""Several targets on the real middleware, the node in a process of its own."""

from __future__ import annotations

import numpy as np
import pytest
from efftam_ros.msg import BoundingBox, SelectionResult, Tracks
from efftam_ros.srv import ClearTarget
from level_pipeline import HEIGHT, WIDTH
from ros_helpers import CLEARED, box_selection, image_message, stamp_of
from sensor_msgs.msg import Image

from efftam_ros.core.geometry import Box
from efftam_ros.images.message import stamp_ns

QUICK = ("-p", "image_timeout:=60.0", "-p", "diagnostics_period:=0.1")
SIDE = 24


def place(k: int, i: int) -> Box:
    """Where square ``k`` is in image ``i``: they lie in two rows and move slowly, to and fro."""
    return Box(12.0 + 76 * (k % 4) + abs((i + 40) % 80 - 40), 40.0 + 110 * (k // 4), SIDE, SIDE)


def squares(i: int, count: int) -> np.ndarray:
    """Image ``i`` with so many squares, each of a grey level of its own."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for k in range(count):
        x, y, w, h = (int(v) for v in place(k, i).xywh())
        image[y : y + h, x : x + w] = 30 * (k + 1)
    return image


class Several:
    """A tracker, and a scene with so many squares."""

    def __init__(self, peer, count: int) -> None:
        self.peer, self.count, self.i = peer, count, 0
        self.lists: dict[int, Tracks] = {}  # by stamp
        peer.node.create_subscription(
            Tracks, "tracks", lambda m: self.lists.update({stamp_ns(m.header.stamp): m}), 10
        )
        while not self.lists:  # until the tracker knows of the subscription
            self.send()
            peer.spin_for(0.1)
        peer.forget()

    def send(self) -> int:
        """The next image; returns its stamp."""
        self.i += 1
        self.peer.images.publish(image_message(squares(self.i, self.count), stamp_of(self.i)))
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
        return self.peer.select(box_selection(place(k, i), stamp_of(i), target_id=target_id))

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

    def clear(self, target_id: int):
        return self.peer.call(self.peer.clear_client, ClearTarget.Request(target_id=target_id))


@pytest.fixture
def several(tracker):
    """Start a tracker: ``several(squares, followed)``."""

    def start(count, followed, **how):
        scene = Several(tracker(*QUICK, **how), count)
        scene.follow(followed)
        scene.peer.forget()
        return scene

    return start


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
        place_of = place(k, scene.i)
        assert picture[int(place_of.cy), int(place_of.cx)] == k + 1
    assert picture[HEIGHT - 1, WIDTH - 1] == 0
    _, values = scene.peer.diagnosis(lambda s, v: "target 2" in v, "each target")
    assert [values[f"target {k}"] for k in range(3)] == ["TRACKING"] * 3
    assert all(float(values[f"target {k} (ms)"]) > 0.0 for k in range(3))
    assert float(values["memory per target (MB)"]) == 0.0  # this test's pipeline has none
    assert (values["steered target"], values["targets per image"]) == ("0", "all")
