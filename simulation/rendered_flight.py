"""A drone with a gimbal and a stand-in autopilot in the rendered world.

The bridge commands the autopilot, which turns the gimbal. The camera's pictures show the world in the
direction in which the gimbal points. So tracker, controller and bridge can be tested in a closed loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from efftam_flight.angles import wrapped
from efftam_flight.mavlink.links.connection import Connection
from simulation.autopilots.autopilot import Autopilot, Port
from simulation.autopilots.gimbal import GimbalDevice, Mount
from simulation.autopilots.memory_link import memory_link
from simulation.paths import direction
from simulation.world import Shot, World


class RenderedFlight:
    """One flight in the rendered world. At the start the gimbal points at the target.

    ``flavour``: class of the stand-in autopilot. ``companion``: the autopilot's link to the bridge.
    ``clock``: returns steady time, s. ``station``: the autopilot's link to a ground station. ``began_s``:
    time at which vehicle and target begin to move; None: they rest until `begin` is called.
    """

    def __init__(
        self,
        world: World,
        flavour: type[Autopilot],
        companion: Connection,
        clock: Callable[[], float],
        station: Connection | None = None,
        began_s: float | None = 0.0,
    ) -> None:
        self.world, self._clock, self._began_s = world, clock, began_s
        now_s = clock()
        self.mount = Mount(vehicle=self._vehicle)
        self.point_at_target()
        device_end, port_end = memory_link("gimbal", clock)
        ports = {"companion": Port(companion), "gimbal": Port(port_end)}
        if station is not None:
            ports["station"] = Port(station)
        self._device = GimbalDevice(self.mount, device_end, clock, booted_s=now_s - 40.0)
        self._autopilot = flavour(ports, clock, self.mount, "gimbal")

    def step(self) -> None:
        """Advance gimbal and autopilot to the present time. Must be called every few milliseconds."""
        self._device.step()
        self._autopilot.step()

    def begin(self) -> None:
        """Start the motion of vehicle and target."""
        self._began_s = self._clock()

    def point_at_target(self) -> None:
        """Turn the gimbal to the target at once, as if the pilot steered before the controller does."""
        now_s = self._clock()
        yaw, pitch = self.target(now_s)
        self.mount.yaw += wrapped(yaw - self.mount.heading(now_s))
        self.mount.pitch = pitch

    def pointing(self) -> tuple[float, float]:
        """Return yaw from north and pitch of the optical axis, rad."""
        now_s = self._clock()
        return self.mount.heading(now_s), self.mount.pitch + self.world.config.drone.pitch(
            self._scene_s(now_s)
        )

    def shoot(self) -> Shot:
        """Render the camera's present picture."""
        return self.world.shoot(self._scene_s(self._clock()), *self.pointing())

    def off_axis(self) -> float:
        """Return the angle between the optical axis and the target, rad."""
        return angle_between(self.pointing(), self.target(self._clock()))

    def target(self, now_s: float) -> tuple[float, float]:
        """Return yaw from north and pitch of the direction from the drone to the target, rad."""
        config, scene_s = self.world.config, self._scene_s(now_s)
        return direction(config.drone.at(scene_s), config.target.at(scene_s))

    def _scene_s(self, now_s: float) -> float:
        """Return the time since vehicle and target began to move, s."""
        return 0.0 if self._began_s is None else now_s - self._began_s

    def _vehicle(self, now_s: float) -> tuple[float, float]:
        heading, turn = self.world.config.drone.heading(self._scene_s(now_s))
        return heading, 0.0 if self._began_s is None else turn


def angle_between(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the angle between two directions, rad. Each is (yaw, pitch), rad."""
    cosine = math.sin(a[1]) * math.sin(b[1]) + math.cos(a[1]) * math.cos(b[1]) * math.cos(b[0] - a[0])
    return math.acos(min(max(cosine, -1.0), 1.0))
