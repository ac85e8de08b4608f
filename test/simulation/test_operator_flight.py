"""A simulated flight in which somebody else selects and enables: when the pilot's hand points the camera."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("efftam_ros.msg", reason="the messages are not built")
pytest.importorskip("pymavlink", reason="the station speaks MAVLink: pip install pymavlink")

from efftam_ros.msg import GimbalStatus

from simulation import scenario
from simulation.record import Steering


def hand_by_second(monkeypatch, phases: list[int | None]) -> list[bool]:
    """Whether the hand points the camera, by second. ``phases``: the controller's; None: it is silent."""
    now_s = 100.0
    monkeypatch.setattr(scenario.time, "monotonic", lambda: now_s)
    node = SimpleNamespace(status=None)
    flight = scenario.Scenario(
        SimpleNamespace(begin=lambda: None), None, node, None, 20.0, lambda *_: None, lambda: False
    )
    hand: list[bool] = []

    def step(_phase: str, passed_s: float) -> None:
        nonlocal now_s
        hand.append(flight._by_hand)
        now_s += 1.0
        if passed_s + 1.0 < len(phases) and (phase := phases[int(passed_s) + 1]) is not None:
            node.status = Steering(now_s, phase, 0, 0.0, 0.0, "")

    monkeypatch.setattr(flight, "_step", step)
    flight.run_for_operator(len(phases))
    return hand


OFF, ON, LOST = GimbalStatus.OFF, GimbalStatus.HOLDING, GimbalStatus.CONTROL_LOST


@pytest.mark.parametrize("ending", [OFF, LOST, None], ids=["disabled", "control lost", "controller ended"])
def test_the_hand_lets_go_while_steering_is_on_and_for_five_seconds_after(ending, monkeypatch):
    last_on = 3 if ending is not None else 4  # a status counts for one second
    hand = hand_by_second(monkeypatch, [None, OFF, ON, ON, *[ending] * 8])
    assert hand == [s < 2 or s > last_on + scenario.OFF_S for s in range(12)]
