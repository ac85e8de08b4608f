"""What the gimbal controller still counts after something ended: nothing of before."""

from __future__ import annotations

import pytest
from flight.test_gimbal_control import following

from efftam_ros.flight.control_config import Law, Phase
from efftam_ros.flight.values import Control


@pytest.mark.parametrize("clock_rate", [0.0, 1.0])
def test_an_attitude_grows_old_also_while_the_images_clock_stands_still(clock_rate: float):
    made = following(attitude_age=0.1, silence=2.0)
    made.attitude = None
    laws = []
    for _ in range(20):
        made.jump_s -= 0.02 * (1.0 - clock_rate)
        laws.append(made.step().law)
    assert laws[0] is Law.LINE_OF_SIGHT
    assert laws[-1] is Law.IMAGE_ONLY


def test_after_control_was_lost_no_zeros_are_sent_for_the_motion_before():
    made = following()
    made.control.on_control(Control.HELD)
    made.step()
    made.control.on_control(Control.OTHER)
    lost = made.step()
    assert (lost.phase, lost.send) == (Phase.CONTROL_LOST, False)
    made.control.on_control(Control.HELD)
    made.control.set_enabled(False)
    assert not made.step().send


@pytest.mark.parametrize("by_s", [-100.0, -0.3, -0.15, 0.15, 0.3, 100.0])
def test_answers_of_before_the_images_clock_was_set_either_way_do_not_count(by_s: float):
    made = following()
    made.answers, made.jump_s = False, by_s
    command = made.step()
    is_set = abs(by_s) > 0.2
    assert (command.phase is Phase.WAITING) is is_set, command.reason
    assert (f"{by_s:+.1f} s" in command.reason) is is_set
