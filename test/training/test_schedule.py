"""What is trained when: stages as they are written, and learning rates."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efftam_ros.core.errors import InputError
from training.schedule import DEFAULT_STAGES, TRUNK, Stage, learning_rate, parse_stages, stage_at


def test_stages_are_read_as_they_are_written():
    assert parse_stages("0:2:16:frozen, 0.25:4:8:trunk,0.5:4:8:top") == (
        Stage(0.0, 2, 16, 7),
        Stage(0.25, 4, 8, 3),
        Stage(0.5, 4, 8, 4),
    )


def test_the_default_goes_from_short_clips_with_a_frozen_trunk_to_long_ones():
    stages = parse_stages(DEFAULT_STAGES)
    frames = [stage.frames for stage in stages]
    assert frames == sorted(frames)
    assert 4 <= frames[-1] <= 8
    assert stages[0].first_learning == TRUNK["frozen"]
    assert stages[-1].first_learning < TRUNK["frozen"]


@pytest.mark.parametrize(
    ("text", "faulty"),
    [
        ("", "''"),
        ("0:2:16", "'0:2:16'"),
        ("0:2:16:thawed", "'0:2:16:thawed'"),
        ("0:2:16:all:ajar", "'0:2:16:all:ajar'"),
        ("0:2:16:frozen,later:4:8:trunk", "'later:4:8:trunk'"),
        ("0:2.5:16:frozen", "'0:2.5:16:frozen'"),
        ("0:0:16:frozen", "'0:0:16:frozen'"),
        ("0:2:0:frozen", "'0:2:0:frozen'"),
        ("0:2:16:frozen,1:4:8:trunk", "'1:4:8:trunk'"),
        ("-0.1:2:16:frozen", "'-0.1:2:16:frozen'"),
        ("nan:2:16:frozen", "'nan:2:16:frozen'"),
        ("0.1:2:16:frozen", "'0.1:2:16:frozen'"),
        ("0:2:16:frozen,0.5:4:8:trunk,0.2:4:8:trunk", "begin at 0 and follow each other"),
    ],
)
def test_stages_that_can_not_be_meant_are_refused_in_one_line(text, faulty):
    with pytest.raises(InputError) as refused:
        parse_stages(text)
    assert faulty in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_stage_lasts_until_the_next_begins():
    stages = parse_stages("0:2:16:frozen,0.25:4:8:trunk,0.7:7:5:trunk")
    at = {0.0: 0, 0.2499: 0, 0.25: 1, 0.69: 1, 0.7: 2, 0.99: 2, 1.0: 2}
    assert {progress: stage_at(stages, progress) for progress in at} == at


def test_the_rate_warms_up_in_a_straight_line():
    rates = [learning_rate(1.0, step, 0.0) for step in range(200)]
    assert rates[0] == pytest.approx(1 / 150)
    assert rates[74] == pytest.approx(0.5)
    assert rates[149:] == pytest.approx([1.0] * 51)


@settings(deadline=None)
@given(highest=st.floats(1e-6, 1.0), steps=st.integers(400, 50_000))
def test_after_the_warm_up_the_rate_falls_to_a_fiftieth(highest, steps):
    rates = [learning_rate(highest, step, step / steps) for step in range(150, steps, max(1, steps // 200))]
    assert rates == sorted(rates, reverse=True)
    assert max(rates) <= highest
    assert learning_rate(highest, steps, 0.5) == pytest.approx(0.51 * highest)
    assert learning_rate(highest, steps, 1.0) == pytest.approx(highest / 50)
    assert learning_rate(highest, 2 * steps, 2.0) == pytest.approx(highest / 50)
