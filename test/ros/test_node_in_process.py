"""The tracker's node in the test's own process: what its diagnostics say of set-up and internal errors."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from diagnostic_msgs.msg import DiagnosticStatus
from level_pipeline import LevelPipeline, bright_box
from sensor_msgs.msg import Image

from efftam_ros.core.types import PipelineSpec
from efftam_ros.ros.tracker import session

pytestmark = pytest.mark.ros


class Failing(LevelPipeline):
    """Divides by zero while ``fails``, in its masks while ``fails_in_masks``."""

    fails = fails_in_masks = False

    def __init__(self):
        super().__init__()
        self.spec = PipelineSpec(name="failing", image_side=512, default_view="window")

    def encode(self, image, view):
        if self.fails:
            raise ZeroDivisionError("by zero")
        super().encode(image, view)

    def mask(self, choice):
        if self.fails_in_masks:
            raise ZeroDivisionError("in a mask")
        return super().mask(choice)


@pytest.fixture
def running(tracker):
    """``running("-p", "view:=full")``: the pipeline, and the peer of an active node."""

    def start(*arguments):
        pipeline, quick = Failing(), ("-p", "diagnostics_period:=0.1", "-p", "image_timeout:=60.0")
        return pipeline, tracker(*quick, *arguments, pipeline=lambda config: pipeline)

    return start


@pytest.mark.parametrize(("given", "used"), [((), "window"), (("-p", "view:=full"), "full")])
def test_diagnostics_name_the_bundle_and_the_view_that_is_used(running, given, used):
    _, peer = running(*given)
    _, values = peer.diagnosis(lambda _, values: "view" in values, "the set-up")
    assert (values["bundle"], values["view"], values["policy"]) == ("failing", used, "default")


def test_an_internal_error_is_an_error_in_diagnostics_and_the_node_goes_on(running):
    pipeline, peer = running()
    peer.show(0)
    peer.follow(0, bright_box(0))
    del peer.diagnostics[:]
    pipeline.fails = True
    assert not peer.show(1).measured
    # It is told once: maybe before the answer is seen here.
    peer.wait(lambda: any(s.level == DiagnosticStatus.ERROR for s in peer.diagnostics), "the error")
    status = next(s for s in peer.diagnostics if s.level == DiagnosticStatus.ERROR)
    assert "ZeroDivisionError" in status.message
    assert {v.key: v.value for v in status.values}["last internal error"] == "ZeroDivisionError: by zero"
    pipeline.fails = False
    peer.show(2)
    peer.follow(2, bright_box(2))
    assert peer.show(3).measured


def test_a_mask_that_can_not_be_made_is_an_error_in_diagnostics_and_the_target_is_tracked_on(running):
    pipeline, peer = running()
    masks = []
    peer.node.create_subscription(Image, "mask", masks.append, 10)
    peer.show(0)
    peer.follow(0, bright_box(0))
    i = 0
    while not masks:
        i += 1
        peer.show(i)
        peer.spin_for(0.05)
    pipeline.fails_in_masks = True
    assert peer.show(i + 1).measured
    status, _ = peer.diagnosis(lambda s, _: "in a mask" in s.message, "the error")
    assert status.level == DiagnosticStatus.ERROR
    assert peer.show(i + 2).measured
    shown = i + 4  # 0 twice: alone, and with the selection
    _, values = peer.diagnosis(lambda _, v: int(v["images processed"]) >= shown, "every image")
    assert int(values["images processed"]) == shown
    pipeline.fails_in_masks = False
    del masks[:]
    assert peer.show(i + 3).measured
    peer.wait(lambda: masks, "the mask")


def test_once_images_arrive_none_is_missed_however_long_the_node_runs(running, monkeypatch):
    monkeypatch.setattr(session, "FIRST_IMAGE_S", math.inf)
    _, peer = running()
    monkeypatch.setattr(session, "FIRST_IMAGE_S", 0.0)
    peer.spin_for(2 * session.INPUT_PERIOD_S)
    assert "no image has arrived yet" not in peer.process.output
