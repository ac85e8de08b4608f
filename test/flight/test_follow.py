"""FOLLOW_TARGET: what goes out, what ends it, and that nothing starts it again; the autopilots' own rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from flight.rig import EPOCH_NS, Desk, GimbalLog, Peer, Time
from support.reasons import because

from efftam_flight.angles import from_angles
from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.mavlink.dialect import mav
from efftam_flight.mavlink.framing import Decoder
from efftam_flight.position.poses import PlaceSample
from efftam_flight.values import NS
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from efftam_ros.messages.positions import HeightSource, PositionReport
from simulation.autopilots.following import (
    FOLLOWS,
    LOITER,
    ApFollow,
    AutoFollowTarget,
    FlyingVehicle,
    FollParameters,
)
from simulation.autopilots.memory_link import memory_link
from simulation.follow import ENDINGS, FollowFlight

FOLLOW_ID = 200
LOITERS, COPTER_FOLLOWS, ARMED = 5, 23, 128
SPREAD = np.diag([1.0, 1.0, 0.04, 0.04]).ravel()


class Scene:
    """A bridge with an ArduCopter, whose heartbeats come twice a second, and a target that is located."""

    def __init__(self, **config: object) -> None:
        self.time = Time()
        here, there = memory_link("companion", self.time)
        here.record = True
        self.link = here
        self.config = BridgeConfig(**{"follow": True, **config})  # type: ignore[arg-type]
        self.lines: list[str] = []
        self.places: list[PlaceSample] = []
        self.autopilot = Peer(there, self.time, (1, 1))
        self.mode, self.flags, self.speaks, self.located = LOITERS, ARMED, True, True
        self.report = PositionReport(
            0,
            target_id=3,
            selection=7,
            state=TrackState.TRACKING,
            measured=True,
            age_s=0.0,
            valid=True,
            latitude=47.4,
            longitude=8.55,
            altitude=431.0,
            x=10.0,
            y=20.0,
            velocity_x=1.5,
            velocity_y=0.0,
            covariance=tuple(SPREAD),
            range=50.0,
            height_source=HeightSource.HOME,
        )
        self.begin_anew()
        self.run(1.0)

    def begin_anew(self) -> None:
        """As after the bridge's process was killed."""
        self.bridge = Bridge(
            self.config,
            [self.link],
            Desk(),
            GimbalLog(self.time),
            self.time.instant,
            lambda severity, text: self.lines.append(text),
            vehicle=self.places.append,
        )

    def run(self, seconds: float) -> Scene:
        for _ in range(round(seconds / 0.02)):
            self.time.t += 0.02
            tick = round(self.time.t / 0.02)
            if self.speaks and tick % 25 == 0:
                self.autopilot.send(
                    mav.MAVLink_heartbeat_message(
                        mav.MAV_TYPE_QUADROTOR, mav.MAV_AUTOPILOT_ARDUPILOTMEGA, self.flags, self.mode, 4, 3
                    )
                )
            if self.located and tick % 5 == 0:
                self.locate()
            self.bridge.step()
        return self

    def locate(self, **changes: object) -> None:
        self.report = replace(self.report, **changes)  # type: ignore[arg-type]
        stamped = replace(self.report, stamp_ns=self.time.instant().stamp_ns)
        self.bridge.locate(stamped)

    def sent(self, kind: str = "FOLLOW_TARGET") -> list:
        decoder = Decoder(True)
        found = [m for data in self.link.sent for m in decoder.feed(data)]
        return [m for m in found if m.get_type() == kind]

    def in_next(self, seconds: float) -> int:
        """How many FOLLOW_TARGET go out in so long."""
        before = len(self.sent())
        return len(self.run(seconds).sent()) - before

    def follow(self) -> Scene:
        self.bridge.enable_follow(True)
        self.mode = COPTER_FOLLOWS
        self.run(2.0)
        assert self.in_next(1.0) == 10
        return self


def test_without_the_parameter_not_one_byte_goes_out_and_the_service_is_refused():
    scene = Scene(follow=False).run(3.0)
    with pytest.raises(InputError, match="follow"):
        scene.bridge.enable_follow(True)
    scene.run(3.0)
    assert scene.sent() == []
    assert [m for m in scene.sent("HEARTBEAT") if m.get_srcSystem() == FOLLOW_ID] == []
    assert not scene.bridge.follow.state.available


def test_nothing_goes_out_before_it_is_enabled_but_its_systems_heartbeat():
    scene = Scene().run(5.0)
    assert scene.sent() == []
    beats = [m for m in scene.sent("HEARTBEAT") if m.get_srcSystem() == FOLLOW_ID]
    assert len(beats) == pytest.approx(6, abs=1)
    assert beats[0].autopilot == mav.MAV_AUTOPILOT_INVALID


def test_what_goes_out_ten_times_a_second():
    scene = Scene().follow()
    first, last = scene.sent()[0], scene.sent()[-1]
    assert first.get_srcSystem() == FOLLOW_ID
    assert (last.lat, last.alt) == (474000000, 431.0)
    assert last.lon == pytest.approx(85500000, abs=40)  # carried on by up to 0.2 s
    assert list(last.vel) == pytest.approx([0.0, 1.5, 0.0])
    assert last.est_capabilities == 1 | 2 | 8
    assert list(last.attitude_q) == pytest.approx(from_angles(0.0, 0.0, math.pi / 2), abs=1e-6)
    assert last.timestamp - first.timestamp == pytest.approx(2900, abs=110)
    assert last.position_cov[0] == pytest.approx(math.sqrt(2.0))


def test_a_target_that_hardly_moves_has_no_attitude():
    scene = Scene()
    scene.locate(velocity_x=0.5)
    scene.bridge.enable_follow(True)
    scene.run(1.0)
    assert scene.sent()[-1].est_capabilities == 1 | 2
    assert list(scene.sent()[-1].attitude_q) == [0.0] * 4


@pytest.mark.parametrize(
    ("changes", "config"),
    [
        ({"valid": False, "reason": because("near")}, {}),
        ({"latitude": math.nan}, {}),
        ({"covariance": tuple(13.0 * SPREAD)}, {}),  # sqrt(26) m
        ({"covariance": tuple(2.0 * SPREAD)}, {"follow_accuracy": 1.9}),
    ],
)
def test_it_waits_for_a_position_that_is_good_enough_and_ends_when_it_was_and_is_not_any_more(
    changes, config
):
    scene = Scene(**config)
    good = scene.report
    scene.locate(**changes)
    waits_for = scene.bridge.enable_follow(True)
    assert waits_for
    assert scene.in_next(5.0) == 0
    assert scene.bridge.follow.state.enabled
    scene.report = good if not config else replace(good, covariance=tuple(0.5 * SPREAD))
    assert scene.in_next(1.0) >= 9
    scene.locate(**changes)
    scene.run(0.5)
    scene.link.sent.clear()
    scene.run(5.0)
    assert scene.sent() == []
    assert not scene.bridge.follow.state.enabled
    scene.report = good
    assert scene.in_next(3.0) == 0


def stop_speaking(scene: Scene) -> None:
    scene.speaks = False


def stop_locating(scene: Scene) -> None:
    scene.located = False


ENDS: dict[str, tuple[Callable[[Scene], object], float]] = {
    "disabled": (lambda s: s.bridge.enable_follow(False), 0.0),
    "lost": (lambda s: s.locate(state=TrackState.LOST, valid=False), 0.0),
    "cleared": (lambda s: s.locate(state=TrackState.IDLE, valid=False, selection=0, target_id=0), 0.0),
    "another selection": (lambda s: s.locate(selection=8), 0.0),
    "another target": (lambda s: s.locate(target_id=4), 0.0),
    "no positions": (stop_locating, 1.1),
    "another mode": (lambda s: setattr(s, "mode", LOITERS), 0.6),
    "disarmed": (lambda s: setattr(s, "flags", 0), 0.6),
    "autopilot silent": (stop_speaking, 3.7),
    "bridge killed": (lambda s: s.begin_anew(), 0.0),
}


@pytest.mark.parametrize("end", ENDS)
def test_each_ending_stops_it_in_time_and_nothing_starts_it_again(end):
    scene = Scene().follow()
    good = scene.report
    act, most_s = ENDS[end]
    act(scene)
    scene.run(most_s)
    assert scene.in_next(3.0) == 0
    assert not scene.bridge.follow.state.enabled
    # All is well again, and another selection comes.
    scene.speaks = scene.located = True
    scene.report, scene.mode, scene.flags = replace(good, selection=9), COPTER_FOLLOWS, ARMED
    assert scene.in_next(5.0) == 0
    scene.bridge.enable_follow(True)
    assert scene.in_next(1.0) >= 9


def test_a_restart_of_the_autopilot_ends_it():
    scene = Scene()
    for boot_ms in (500_000, 500_500, 501_000):
        scene.autopilot.send(mav.MAVLink_attitude_message(boot_ms, 0, 0, 0, 0, 0, 0))
        scene.run(0.5)
    scene.follow()
    scene.autopilot.send(mav.MAVLink_attitude_message(2_000, 0, 0, 0, 0, 0, 0))
    scene.run(0.2)
    assert scene.in_next(2.0) == 0


def test_coasting_is_predicted_for_a_second():
    scene = Scene().follow()
    began = scene.time.t
    scene.located = False
    for _ in range(20):
        scene.locate(state=TrackState.COASTING, measured=False, age_s=scene.time.t - began)
        scene.run(0.1)
    # The last one: within a second of the last measurement.
    since = [m for m in scene.sent() if m.timestamp / 1000 > began - 0.1]
    assert 9 <= len(since) <= 12
    assert not scene.bridge.follow.state.enabled


def test_the_pilots_choice_of_the_mode_that_follows_is_no_end():
    scene = Scene()
    scene.bridge.enable_follow(True)
    assert scene.in_next(1.0) >= 9
    scene.mode = COPTER_FOLLOWS
    assert scene.in_next(2.0) == 20
    scene.mode = LOITERS
    scene.run(0.6)
    assert scene.in_next(1.0) == 0


@pytest.mark.parametrize("lack", ["autopilot", "positions", "target"])
def test_it_can_not_be_enabled_without(lack):
    scene = Scene()
    if lack == "autopilot":
        stop_speaking(scene)
    elif lack == "positions":
        stop_locating(scene)
    else:
        scene.locate(state=TrackState.LOST, valid=False)
    scene.run(4.0)
    with pytest.raises(InputError):
        scene.bridge.enable_follow(True)
    assert scene.sent() == []


def test_its_system_is_another_one_than_the_vehicles():
    with pytest.raises(InputError, match="follow_system_id"):
        BridgeConfig(follow=True, follow_system_id=1)


# 276, and what the position is made of


def test_the_position_goes_to_stations_as_276_by_interval_and_on_request():
    scene = Scene(follow=False)
    station = Peer(scene.autopilot.link, scene.time, (255, 190))
    station.command(511, 276, 100_000)
    for _ in range(4):
        scene.bridge.track(_box(scene))
        scene.run(0.5)
    told = scene.sent("CAMERA_TRACKING_GEO_STATUS")
    assert len(told) == pytest.approx(20, abs=2)
    last = told[-1]
    assert (last.tracking_status, last.lat, last.lon) == (
        mav.CAMERA_TRACKING_STATUS_FLAGS_ACTIVE,
        474000000,
        85500000,
    )
    assert (last.alt, last.dist) == (431.0, 50.0)
    assert (last.vel_n, last.vel_e) == (0.0, 1.5)
    assert last.h_acc == pytest.approx(math.sqrt(2.0))
    assert last.hdg == pytest.approx(math.pi / 2)
    assert math.isnan(last.vel_d)
    station.command(511, 276, -1)
    scene.run(0.2)
    scene.link.sent.clear()
    scene.run(1.0)
    assert scene.sent("CAMERA_TRACKING_GEO_STATUS") == []
    station.command(512, 276)
    scene.run(0.1)
    assert len(scene.sent("CAMERA_TRACKING_GEO_STATUS")) == 1


def test_without_a_position_276_has_no_numbers():
    scene = Scene(follow=False)
    scene.located = False
    scene.run(2.0)
    scene.bridge.track(_box(scene))
    Peer(scene.autopilot.link, scene.time, (255, 190)).command(512, 276)
    scene.run(0.1)
    (told,) = scene.sent("CAMERA_TRACKING_GEO_STATUS")
    assert (told.lat, told.lon) == (2**31 - 1, 2**31 - 1)
    assert all(math.isnan(v) for v in (told.alt, told.h_acc, told.vel_n, told.dist, told.hdg))
    assert told.tracking_status == mav.CAMERA_TRACKING_STATUS_FLAGS_ACTIVE


def _box(scene: Scene):
    from flight.rig import status

    return status(TrackState.TRACKING, EPOCH_NS + round(scene.time.t * NS))


def test_the_vehicles_position_is_read_with_range_and_terrain():
    scene = Scene(range_orientation=25)
    fix = mav.MAVLink_global_position_int_message(
        1000, 474000000, 85500000, 460_000, 30_000, 100, -50, 20, 65535
    )
    scene.autopilot.send(fix)
    scene.run(0.1)
    (place,) = scene.places
    assert (place.point.latitude, place.point.longitude, place.point.altitude) == (47.4, 8.55, 460.0)
    assert place.velocity == (1.0, -0.5, 0.2)
    assert place.height_above_home == 30.0
    assert math.isnan(place.range)
    assert math.isnan(place.height_above_terrain)
    scene.autopilot.send(_range(25, 4200))
    scene.autopilot.send(_range(0, 900))  # looks elsewhere
    scene.autopilot.send(mav.MAVLink_terrain_report_message(474000000, 85500000, 100, 432.0, 28.0, 0, 10))
    scene.autopilot.send(fix)
    scene.run(0.1)
    assert (scene.places[-1].range, scene.places[-1].height_above_terrain) == (42.0, 28.0)
    scene.run(4.0)
    scene.autopilot.send(fix)
    scene.run(0.1)
    assert math.isnan(scene.places[-1].range)
    assert math.isnan(scene.places[-1].height_above_terrain)


@pytest.mark.parametrize(("range_cm", "quality"), [(10, 0), (5100, 0), (4200, 1)])
def test_a_range_beyond_the_sensors_or_without_a_signal_is_none(range_cm, quality):
    scene = Scene(range_orientation=25)
    scene.autopilot.send(_range(25, range_cm, quality))
    scene.autopilot.send(
        mav.MAVLink_global_position_int_message(1, 474000000, 85500000, 460_000, 1, 0, 0, 0, 0)
    )
    scene.run(0.1)
    assert math.isnan(scene.places[-1].range)


def _range(orientation: int, centimetres: int, quality: int = 0):
    return mav.MAVLink_distance_sensor_message(
        1000, 20, 5000, centimetres, 0, 0, orientation, 255, signal_quality=quality
    )


# The autopilots' own rules, by their sources


def _target(sender: int = FOLLOW_ID, capabilities: int = 3, **changes: object):
    zeros, level = (0.0,) * 3, (1.0, 0.0, 0.0, 0.0)
    place = (474001000, 85500000, 431.0)
    message = mav.MAVLink_follow_target_message(0, capabilities, *place, zeros, zeros, level, zeros, zeros, 0)
    for name, value in changes.items():
        setattr(message, name, value)
    message._header = mav.MAVLink_header(144, 0, 0, 0, 0, sender, 191)
    return message


def copter(**parameters: object) -> ApFollow:
    return ApFollow(FlyingVehicle(np.array([0.0, 0.0, -20.0])), FollParameters(**parameters))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "message", "taken"),
    [
        ({}, _target(), 1),
        ({}, _target(sender=1), 0),  # its own
        ({"sysid": 200}, _target(), 1),
        ({"sysid": 201}, _target(), 0),
        ({"enable": 0}, _target(), 0),
        ({}, _target(capabilities=2), 0),  # no position
        ({}, _target(lat=0, lon=0), 0),
        ({"ofs_type": 1}, _target(capabilities=3), 0),  # relative needs a heading
        ({"ofs_type": 1}, _target(capabilities=11), 1),
    ],
)
def test_which_messages_arducopter_obeys(parameters, message, taken):
    vehicle = copter(**parameters)
    vehicle.take(message, 0.0)
    assert vehicle.taken == taken


def test_arducopter_stays_with_its_first_sender_for_ten_seconds():
    vehicle = copter()
    vehicle.take(_target(), 0.0)
    vehicle.take(_target(sender=7), 1.0)
    assert vehicle.taken == 1
    vehicle.take(_target(sender=7), 11.0)
    assert vehicle.taken == 2


def test_arducopters_estimate_lasts_3_s_and_to_foll_dist_max():
    vehicle = copter(ofs=(-5.0, 0.0, -20.0))
    vehicle.take(_target(), 0.0)
    assert np.linalg.norm(vehicle.wish(2.9, 0.02)) > 0
    assert not vehicle.wish(3.1, 0.02).any()
    near = copter(ofs=(-5.0, 0.0, -20.0), dist_max=10.0)
    near.take(_target(), 0.0)
    assert not near.wish(0.1, 0.02).any()


def test_px4_stands_1_5_s_after_the_last_message():
    vehicle = AutoFollowTarget(FlyingVehicle(np.array([0.0, 0.0, -20.0])))
    vehicle.choose(FOLLOWS)
    for i in range(100):
        vehicle.take(_target(vel=(1.5, 0.0, 0.0), lat=474001000 + round(i * 0.1 * 1.5 / 0.0111)), i * 0.1)
        for j in range(5):
            vehicle.step(i * 0.1 + j * 0.02)
    assert vehicle.vehicle.speed > 1.0
    t = 10.0
    while t < 18.0:
        t += 0.02
        vehicle.step(t)
    assert vehicle.vehicle.speed < 0.3


def test_a_mode_that_loiters_does_not_move():
    vehicle = copter()
    vehicle.take(_target(), 0.0)
    for i in range(50):
        vehicle.step(i * 0.02)
    assert (vehicle.mode, vehicle.vehicle.speed) == (LOITER, 0.0)


# The whole way in simulated time


@pytest.mark.parametrize("flavour", ["ardupilot", "px4"])
def test_a_walking_target_is_followed_and_loss_ends_it(flavour):
    flight = FollowFlight(flavour).take_off().run(8.0)
    flight.far.clear()
    flight.run(8.0)
    assert math.sqrt(float(np.mean(np.square(flight.far)))) < 3.0
    assert flight.follower.vehicle.speed > 0.7
    began_s = flight.t
    ENDINGS["target hidden: COASTING, then LOST"](flight)
    flight.run(6.0)
    assert flight.sent_s[-1] - began_s <= 1.15
    assert flight.follower.vehicle.speed < 0.5


def test_without_follow_the_autopilot_hears_not_one_144():
    flight = FollowFlight("ardupilot", follow=False).run(8.0)
    with pytest.raises(InputError):
        flight.bridge.enable_follow(True)
    flight.run(2.0)
    assert flight.sent_s == []
