"""A gimbal whose yaw counts from the vehicle's nose is steered by the heading, however rarely that comes."""

from __future__ import annotations

import math

import pytest
from flight.rig import Chase, Rig

from efftam_ros.flight.bridge_config import BridgeConfig
from efftam_ros.flight.control_config import Law


def swinging(t: float) -> tuple[float, float]:
    """Heading and yaw rate: 17 degrees to either side."""
    return 0.3 * math.sin(t), 0.3 * math.cos(t)


def chased(clock_rate: float = 1.0, **config: float) -> tuple[Rig, Chase, list[Law]]:
    """A servo mount on a swinging vehicle, the target's sine; the laws of all ticks from 6 s on."""
    rig = Rig("ardupilot", False, BridgeConfig(**config), vehicle=swinging)
    rig.autopilot.clock_rate = clock_rate
    chase = Chase(rig, lambda t: (math.radians(20) * math.sin(0.2 * math.pi * t), 0.0))
    laws: list[Law] = []
    tick = rig.control.tick

    def recorded(now):
        command = tick(now)
        if rig.time.t >= 6.0:
            laws.append(command.law)
        return command

    rig.control.tick = recorded
    rig.run(20)
    return rig, chase, laws


@pytest.mark.parametrize(("vehicle_rate", "clock_rate"), [(50.0, 0.988), (8.0, 1.01), (5.0, 1.0)])
def test_rare_headings_are_carried_on_by_the_yaw_rate_and_clocks_a_percent_off_are_followed(
    vehicle_rate, clock_rate
):
    _, chase, laws = chased(clock_rate, vehicle_rate=vehicle_rate)
    assert set(laws) == {Law.LINE_OF_SIGHT}
    rms, p99 = chase.figures()
    assert rms < 1.0
    assert p99 < 2.0


def test_without_a_heading_the_reason_is_said_and_the_law_does_not_flicker():
    rig, _, _ = chased()
    take = rig.log.vehicle
    rig.log.vehicle = lambda sample: None
    rig.run(0.5)
    command = rig.control.tick(rig.time.instant())
    assert command.law is Law.IMAGE_ONLY
    assert "heading is 0." in command.reason
    changes, last = 0, command.law
    for i in range(100):  # one heading each 0.4 s
        rig.log.vehicle = take if i % 20 == 0 else lambda sample: None
        rig.run(0.02)
        law = rig.control.tick(rig.time.instant()).law
        changes, last = changes + (law is not last), law
    assert changes == 0
    rig.log.vehicle = take
    rig.run(1.5)
    assert rig.control.tick(rig.time.instant()).law is Law.LINE_OF_SIGHT
