"""Steering from a browser: the page's node beside a real gimbal node, which follows a stand-in tracker."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest

pytest.importorskip("aiohttp", reason="the page needs aiohttp")
pytest.importorskip("pymavlink", reason="the flight nodes need pymavlink")
from efftam_ros.msg import GimbalStatus
from flight_rig import StandInTracker, node_command, wait
from level_node import Spinning
from operator_page import Hands, Operator, chromium
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
