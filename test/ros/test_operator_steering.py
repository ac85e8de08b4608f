"""Steering from a browser: the page's node beside a real gimbal node, which follows a stand-in tracker."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack

import pytest

pytest.importorskip("aiohttp", reason="the page needs aiohttp")
pytest.importorskip("pymavlink", reason="the flight nodes need pymavlink")
from efftam_ros.msg import GimbalStatus
from flight_rig import Rig, StandInTracker, node_command, wait
from level_node import Spinning
from operator_page import Hands, Operator, Page, chromium
from ros_helpers import new_namespace

from efftam_flight.ros.gimbal.node import GimbalNode


@pytest.fixture(scope="module")
def browser(ros):
    with chromium() as browser:
        yield browser


class Cockpit:
    """A page in the browser beside nodes that are started one by one."""

    def __init__(self, processes, browser) -> None:
        self._processes, self._made = processes, ExitStack()
        self.namespace = new_namespace()
        self.tracker = StandInTracker(self.namespace)
        self.operator = Operator(self.namespace)
        self.context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = self.context.new_page()
        page.set_default_timeout(20_000)
        page.goto(self.operator.url)
        self.page, self.hands = page, Hands(page)
        self.hands.wait_text("#state", "TRACKING")

    def start_gimbal(self, as_process: bool = False):
        """The controller, once the page shows it."""
        if as_process:
            gimbal = self._processes(node_command("efftam_gimbal", self.namespace))
        else:
            gimbal = Spinning(GimbalNode(namespace=self.namespace))
            self._made.callback(gimbal.end)
        self.shows("GIMBAL OFF")
        wait(lambda: self.tracker.statuses, "the controller's status")
        return gimbal

    def shows(self, text: str) -> None:
        self.hands.wait_text("#steering-text", text)

    def steer(self) -> None:
        """Two presses, and the wait for what they bring about."""
        self.page.click("#steer")
        self.hands.wait_text("#steer", "Press again")
        assert not self.tracker.statuses[-1].enabled
        self.page.wait_for_timeout(500)
        self.page.click("#steer")
        self.shows("GIMBAL FOLLOWING")
        wait(self.turns, "rates")

    def turns(self) -> bool:
        return bool(self.tracker.rates) and self.tracker.rates[-1][1] != 0.0

    def close(self) -> None:
        self.context.close()
        self._made.close()
        self.operator.end()
        self.tracker.close()


@pytest.fixture
def cockpit(processes, browser):
    made = Cockpit(processes, browser)
    yield made
    made.close()


def test_two_presses_steer_and_stop_stops(cockpit):
    cockpit.start_gimbal()
    assert cockpit.tracker.rates == []
    cockpit.steer()
    assert cockpit.tracker.statuses[-1].enabled
    assert cockpit.page.locator("#steer").is_disabled()

    cockpit.page.click("#stop")
    cockpit.shows("GIMBAL OFF")
    wait(lambda: not cockpit.tracker.statuses[-1].sending, "the controller to send nothing any more")
    assert cockpit.tracker.rates[-1][1] == 0.0
    assert cockpit.tracker.statuses[-1].phase == GimbalStatus.OFF


def test_nothing_is_offered_until_a_controller_runs_and_its_end_is_shown(cockpit):
    assert not cockpit.page.locator("#steering").is_visible()
    gimbal = cockpit.start_gimbal(as_process=True)
    gimbal.send(signal.SIGTERM)
    assert gimbal.wait() == 0
    cockpit.shows("GIMBAL GONE")
    assert cockpit.page.locator("#steer").is_disabled()
    cockpit.page.click("#stop")
    cockpit.hands.wait_text("#notices .refusal", "enable is not offered")
    cockpit.start_gimbal()
    cockpit.steer()


# STOP by what the gimbal does, between real bridge, controller and a stand-in autopilot


@pytest.fixture
def flight(processes):
    """Nodes that steer, and a page: (rig, page)."""
    namespace = new_namespace()
    rig = Rig(namespace, processes, flavour="ardupilot")
    operator = Operator(namespace)
    page = Page(operator.url)
    try:
        rig.ready().follow()
        page.wait(lambda: steering(page).get("phase") == "following")
        yield rig, page
    finally:
        page.close()
        operator.end()
        rig.close()


def steering(page) -> dict:
    told = page.messages("steering")
    return told[-1] if told else {}


def test_stop_says_stopped_once_the_gimbals_attitude_shows_that_it_stands(flight):
    rig, page = flight
    page.send(op="steer", id="s", action="stop")
    page.wait(lambda: page.answer("s"))
    assert (page.answer("s")["ok"], page.answer("s")["message"]) == (True, "stopped")
    assert rig.wire.gimbal_stands()
    assert steering(page)["stop"] == "stopped"
    rig.tracker.enable()
    page.wait(lambda: steering(page)["stop"] == "none")


def test_behind_a_bridge_that_was_killed_a_stop_is_not_confirmed_and_the_silence_counts_from_its_end(flight):
    rig, page = flight
    rig.bridge.send(signal.SIGKILL)
    killed_s = time.monotonic()
    page.wait(lambda: steering(page)["silent"] == "bridge")
    told_s = time.monotonic() - killed_s
    assert steering(page)["silent_s"] == pytest.approx(told_s, abs=0.7)
    page.send(op="steer", id="s", action="stop")
    page.wait(lambda: page.answer("s"))
    answer = page.answer("s")
    assert not answer["ok"]
    assert "bridge" in answer["message"]
    assert "stick" in answer["message"]
    page.wait(lambda: steering(page)["phase"] == "off")  # the controller has stopped, the gimbal has not
    assert (steering(page)["stop"], steering(page)["silent"]) == ("unconfirmed", "bridge")
    assert "bridge" in steering(page)["stop_reason"]
