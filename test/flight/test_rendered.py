"""The rendered world and the loop closed through its pictures."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest
from flight.rig import EPOCH_NS, Desk, GimbalLog, Time, seen_at

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.gimbal_control import GimbalControl
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.values import NS
from efftam_ros.core.types import TrackState
from efftam_ros.messages.reports import MotionReport
from simulation.autopilots.ardupilot import ArduPilot
from simulation.autopilots.memory_link import memory_link

pytest.importorskip("panda3d", reason="rendering needs panda3d: pip install efftam_ros[sim]")
from simulation.rendered_flight import RenderedFlight
from simulation.world import World


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_the_loop_closed_through_pictures_keeps_the_target_also_behind_the_bridge(world):
    """The target's visible box as a tracker would give it 100 ms later; the bridge hides it at 15 s."""
    time = Time()
    time.t = 9.0
    here, there = memory_link("companion", time)
    flight = RenderedFlight(world, ArduPilot, there, time)
    control = GimbalControl()
    control.set_enabled(True)
    bridge = Bridge(
        BridgeConfig(), [here], Desk(), GimbalLog(time, control), time.instant, lambda severity, text: None
    )
    bridge.take_control(True)
    answers: deque[tuple[float, MotionReport]] = deque()
    errors, seen_s = [], time.t
    next_image_s = next_tick_s = time.t
    while time.t < 19.0:
        time.t += 0.004
        flight.step()
        if time.t >= next_image_s:
            next_image_s += 1 / 15
            shot = flight.shoot()
            seen = shot.box is not None
            seen_s = time.t if seen else seen_s
            bearing = world.intrinsics.bearing((shot.box.cx, shot.box.cy), (0.0, 0.0)) if seen else None
            direction = (bearing.azimuth, bearing.elevation) if bearing else (0.0, 0.0)
            state = TrackState.TRACKING if seen else TrackState.COASTING
            age_s = time.t - seen_s
            stamp_ns = EPOCH_NS + round(time.t * NS)
            estimate = seen_at(stamp_ns, *direction, state=state, measured=seen, age_s=age_s)
            answers.append((time.t + 0.1, estimate))
        while answers and answers[0][0] <= time.t:
            control.on_estimate(answers.popleft()[1], time.instant())
        if time.t >= next_tick_s:
            next_tick_s += 0.02
            command = control.tick(time.instant())
            if command.send:
                bridge.set_rates(command.rates)
        bridge.step()
        errors.append((time.t, math.degrees(flight.off_axis())))
    in_sight = [e for t, e in errors if 11.0 < t < 14.5 or t > 17.5]
    assert np.sqrt(np.mean(np.square(in_sight))) < 0.8
    # Half of the picture's height is 22 degrees.
    assert max(e for _, e in errors) < 10.0
