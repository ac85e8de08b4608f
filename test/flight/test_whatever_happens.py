"""Whatever happens in whatever order: 3 s after steering ended the gimbal stands, or another moves it."""

from __future__ import annotations

import math

import pytest
from flight.rig import FLAVOURS, Chase, Rig
from hypothesis import example, given, settings
from hypothesis import strategies as st

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.mavlink.dialect import mav
from efftam_flight.values import GimbalLimits
from efftam_ros.core.types import TrackState

NAN = math.nan
OURS = (1, 100)
# Real-time seconds would be too many: the rig's loops run at 50 Hz.
STEP_S = 0.02
# ArduPilot does not drive its mount before; only afterwards can anybody stop what turns. Where another was
# heard, the bridge waits until the mount is driven for certain: up to 3 s may pass from the boot to the first
# heartbeat, by which it counts.
ASLEEP_S = {"ardupilot": 9.0, "px4": 0.0}
CERTAINLY_AWAKE_S = {"ardupilot": 12.0, "px4": 0.0}
STANDS_S = 3.0
WIDE = GimbalLimits(-1e3, 1e3, -1e3, 1e3)


class World:
    """A chase in which anything may happen. ``author``: whose wish the autopilot obeyed last."""

    def __init__(self, flavour: str, device: bool) -> None:
        self.rig = rig = Rig(flavour, device, BridgeConfig(rc_channels="6"))
        rig.mount.limits = WIDE  # no stop hides that it turns
        self.asleep_s = ASLEEP_S[flavour]
        self.chase = Chase(rig, lambda t: (0.5 * math.sin(t), 0.2 * math.sin(2 * t)))
        rig.rates, rig.after_step = self._rates, self._look
        self.wanted = True
        self.author = OURS
        self.moved_s = self.hindered_s = self.obeyed_s = 0.0
        self.angles = (0.0, 0.0)
        self.streams_until_s = -1.0
        rig.autopilot.channels[5] = 1200
        for name in ("on_gimbal_wish", "on_command"):
            self._note_author(name)
        send = rig.bridge.send

        def noted(message, link=None):
            is_rate = message.get_type() == "GIMBAL_MANAGER_SET_ATTITUDE"
            if is_rate and (message.angular_velocity_y or message.angular_velocity_z):
                self.moved_s = rig.time.t
            send(message, link)

        rig.bridge.send = noted

    def _note_author(self, name):
        autopilot = self.rig.autopilot
        obey = getattr(autopilot, name)

        def noted(*words):
            before = autopilot._wish
            obey(*words)
            if autopilot._wish is not before:
                author = (words[-1].get_srcSystem(), words[-1].get_srcComponent())
                if author != self.author:
                    self.author, self.obeyed_s = author, self.rig.time.t

        setattr(autopilot, name, noted)

    def _rates(self, t):
        """What the controller's node does at each tick."""
        control = self.rig.control
        command = control.tick(self.rig.time.instant())
        if (control.enabled or command.send) != self.wanted:
            self.wanted = not self.wanted
            self.rig.bridge.take_control(self.wanted)
        return command.rates if command.send else None

    def _look(self):
        rig, t = self.rig, self.rig.time.t
        self.chase._step()
        if t < self.streams_until_s:
            rig.station.send(mav.MAVLink_gimbal_manager_set_pitchyaw_message(1, 0, 12, 0, *RATE))
        is_dark = rig.device is not None and not rig.device.powered
        cut = rig.bridge_end.cut or rig.bridge_port.cut
        asleep = t - rig.autopilot.booted_s < self.asleep_s
        if is_dark or cut or asleep or not rig.autopilot_runs:
            self.hindered_s = t
        last, self.angles = self.angles, (rig.mount.pitch, rig.mount.yaw)
        turns = max(abs(a - b) for a, b in zip(self.angles, last, strict=True)) / STEP_S > 2e-3
        # A gimbal that is told to stop takes its time.
        if t - max(self.moved_s, self.hindered_s, self.obeyed_s - STANDS_S + 0.5) > STANDS_S:
            assert not turns or self.author != OURS, f"turns on by our rate at {t:.2f} s"

    # What may happen

    def enable(self):
        self.rig.control.set_enabled(True)

    def disable(self):
        self.rig.control.set_enabled(False)

    def lose(self):
        self.chase.state = TrackState.LOST

    def find(self):
        self.chase.state = TrackState.TRACKING

    def cut(self):
        self.rig.bridge_end.cut = self.rig.bridge_port.cut = True

    def cut_to_autopilot(self):
        self.rig.bridge_end.cut = True

    def join(self):
        self.rig.bridge_end.cut = self.rig.bridge_port.cut = False

    def restart(self):
        self.rig.autopilot.restart()

    def restart_slowly(self):
        self.rig.autopilot_runs = False
        self.rig.run(1.0, STEP_S)
        self.rig.bridge_port.receive()
        self.rig.autopilot_runs = True
        self.rig.autopilot.restart()

    def silence(self):
        if self.rig.device is not None:
            self.rig.device.powered = False

    def power(self):
        if self.rig.device is not None:
            self.rig.device.powered = True

    def rival_moves(self):
        self.rig.station.command(1000, NAN, NAN, 0.0, 15.0, target=(1, 0))

    def rival_streams(self):
        self.streams_until_s = self.rig.time.t + 2.0

    def rival_is_denied(self):
        """PX4 denies the one, ArduPilot passes over the other."""
        self.rig.station.send(
            mav.MAVLink_gimbal_manager_set_pitchyaw_message(1, 0, 12, 0, NAN, NAN, NAN, 0.3)
        )

    def rival_points(self):
        self.rig.station.command(mav.MAV_CMD_DO_SET_ROI_LOCATION, target=(1, 0))

    def rival_points_the_mount(self):
        self.rig.station.command(mav.MAV_CMD_DO_MOUNT_CONTROL, -10.0, 0.0, 20.0, target=(1, 0))

    def rival_takes(self):
        self.rig.station_takes()

    def stick(self):
        self.rig.autopilot.channels[5] = 3000 - self.rig.autopilot.channels[5]


RATE = (NAN, NAN, 0.0, -0.3)
ACTIONS = [name for name in vars(World) if not name.startswith("_")]


@pytest.mark.parametrize("flavour", list(FLAVOURS))
@pytest.mark.parametrize("device", [True, False], ids=["device", "servo"])
@settings(max_examples=12, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(ACTIONS), st.floats(0.02, 3.0)), min_size=1, max_size=8))
@example(steps=[("rival_is_denied", 1.0)])
@example(steps=[("restart_slowly", 1.0)])
@example(steps=[("restart", 0.5), ("enable", 1.0), ("rival_is_denied", 1.0)])
@example(steps=[("rival_points", 4.0)])
@example(steps=[("disable", 0.1), ("rival_points", 4.0)])
@example(steps=[("cut", 1.0), ("disable", 1.0), ("join", 1.0)])
@example(steps=[("disable", 0.3), ("cut_to_autopilot", 2.0)])  # the release is lost
@example(steps=[("cut_to_autopilot", 0.02), ("lose", 1.6), ("join", 4.0)])  # the zeros are
@example(steps=[("rival_takes", 4.0)])
@example(steps=[("restart", 1.5), ("enable", 0.5), ("cut_to_autopilot", 0.1), ("disable", 3.0)])
@example(steps=[("restart_slowly", 1.2), ("rival_is_denied", 1.8), ("restart_slowly", 2.0)])
@example(steps=[("cut_to_autopilot", 1.1), ("stick", 0.2), ("silence", 1.0)])
@example(steps=[("cut_to_autopilot", 1.0), ("rival_is_denied", 6.0)])  # over the pole
@example(steps=[("cut_to_autopilot", 0.5), ("rival_is_denied", 1.0)])  # the last rate was never heard
@example(steps=[("silence", 1.0), ("disable", 0.1), ("power", 1.0)])
def test_three_seconds_after_any_end_the_gimbal_stands_or_another_moves_it(flavour, device, steps):
    world = World(flavour, device)
    rig = world.rig
    if any(name.startswith(("rival", "stick")) for name, _ in steps):
        world.asleep_s = CERTAINLY_AWAKE_S[flavour]
    rig.run(2.5, STEP_S)
    rig.station.heartbeat()
    for name, seconds in steps:
        getattr(world, name)()
        rig.run(seconds, STEP_S)
    world.join()
    world.power()
    world.disable()
    # As long as a mount that was just booted sleeps, and then what is left.
    rig.run(max(rig.autopilot.booted_s + world.asleep_s - rig.time.t, 0.0) + 6.0, STEP_S)
    # Nothing is left to do, and nothing is held.
    assert rig.bridge.gimbal.at_rest
    assert rig.autopilot.primary != OURS
