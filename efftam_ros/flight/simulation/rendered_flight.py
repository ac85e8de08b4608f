"""A drone with a gimbal and a stand-in autopilot in the rendered world: the other end of a closed loop.

The bridge talks to the autopilot over ``companion``; pictures are taken where the gimbal points.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from efftam_ros.flight.angles import wrapped
from efftam_ros.flight.mavlink.connection import Connection
from efftam_ros.flight.simulation.autopilot import Autopilot, Port
from efftam_ros.flight.simulation.gimbal_device import GimbalDevice
from efftam_ros.flight.simulation.memory_link import memory_link
from efftam_ros.flight.simulation.mount import Mount
from efftam_ros.flight.simulation.paths import direction
from efftam_ros.flight.simulation.world import Shot, World


class RenderedFlight:
    """``flavour``: the stand-in's class; ``clock``: s, of the world's paths too; ``station``: a link to a
    ground station, none by default. At the start the gimbal points at the target."""

    def __init__(
        self,
        world: World,
        flavour: type[Autopilot],
        companion: Connection,
        clock: Callable[[], float],
        station: Connection | None = None,
    ) -> None:
        self.world, self._clock = world, clock
        now_s = clock()
        self.mount = Mount(vehicle=world.config.drone.heading)
        yaw, pitch = self._to_target(now_s)
        self.mount.yaw = wrapped(yaw - self.mount.heading(now_s))
        self.mount.pitch = pitch
        device_end, port_end = memory_link("gimbal", clock)
        ports = {"companion": Port(companion), "gimbal": Port(port_end)}
        if station is not None:
            ports["station"] = Port(station)
        self._device = GimbalDevice(self.mount, device_end, clock, booted_s=now_s - 40.0)
        self._autopilot = flavour(ports, clock, self.mount, "gimbal")

    def step(self) -> None:
        """Let gimbal and autopilot go on to the clock's time; call every few milliseconds."""
        self._device.step()
        self._autopilot.step()

    def pointing(self) -> tuple[float, float]:
        """Yaw from north and pitch of the optical axis, rad."""
        now_s = self._clock()
        return self.mount.heading(now_s), self.mount.pitch + self.world.config.drone.pitch(now_s)

    def shoot(self) -> Shot:
        """The camera's picture."""
        return self.world.shoot(self._clock(), *self.pointing())

    def off_axis(self) -> float:
        """Angle between the optical axis and the target, rad."""
        yaw, pitch = self.pointing()
        to_yaw, to_pitch = self._to_target(self._clock())
        cosine = math.sin(pitch) * math.sin(to_pitch)
        cosine += math.cos(pitch) * math.cos(to_pitch) * math.cos(to_yaw - yaw)
        return math.acos(min(max(cosine, -1.0), 1.0))

    def _to_target(self, now_s: float) -> tuple[float, float]:
        config = self.world.config
        return direction(config.drone.at(now_s), config.target.at(now_s))
