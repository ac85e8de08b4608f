"""The tracker's node in the test's own process: what its diagnostics say of its set-up."""

from __future__ import annotations

import math

import pytest
from level_pipeline import LevelPipeline

from efftam_ros.core.types import PipelineSpec
from efftam_ros.ros.tracker import session

pytestmark = pytest.mark.ros


class Windowed(LevelPipeline):
    def __init__(self, config):
        super().__init__()
        self.spec = PipelineSpec(name="windowed", image_side=512, default_view="window")


@pytest.fixture
def running(tracker):
    """``running("-p", "view:=full")``: the peer of an active node."""
    quick = ("-p", "diagnostics_period:=0.1", "-p", "image_timeout:=60.0")
    return lambda *arguments: tracker(*quick, *arguments, pipeline=Windowed)


@pytest.mark.parametrize(("given", "used"), [((), "window"), (("-p", "view:=full"), "full")])
def test_diagnostics_name_the_bundle_and_the_view_that_is_used(running, given, used):
    peer = running(*given)
    _, values = peer.diagnosis(lambda _, values: "view" in values, "the set-up")
    assert (values["bundle"], values["view"], values["policy"]) == ("windowed", used, "default")


def test_once_images_arrive_none_is_missed_however_long_the_node_runs(running, monkeypatch):
    monkeypatch.setattr(session, "FIRST_IMAGE_S", math.inf)
    peer = running()
    monkeypatch.setattr(session, "FIRST_IMAGE_S", 0.0)
    peer.spin_for(2 * session.INPUT_PERIOD_S)
    assert "no image has arrived yet" not in peer.process.output
