"""The figures of a simulated flight, from records whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

pytest.importorskip("pymavlink", reason="needs MAVLink: pip install 'efftam_ros[flight]'")

from efftam_ros.core.types import TrackState
from simulation.flight import load_percent
from simulation.record import Answer, FlightRecord, RecordWriter, Sample, read_record
from simulation.results import SETTLE_S, FlightFigures, figures, slowness, summary

SIZE = (640, 360)
FRAME_S = 0.1
BOX = (300.0, 160.0, 40.0, 40.0)


def sample(i: int, **changes) -> Sample:
    """A picture each tenth of a second, the target one degree off the axis."""
    plain = Sample(
        index=i,
        stamp_ns=i * 100_000_000,
        time_s=FRAME_S * i,
        yaw=0.0,
        pitch=0.0,
        target_yaw=0.0,
        target_pitch=0.0,
        off_axis=math.radians(1.0),
        u=320.0,
        v=180.0,
        box=BOX,
        visible_px=900,
    )
    return replace(plain, **changes)


def answer(i: int, state: TrackState = TrackState.TRACKING, **changes) -> Answer:
    """To picture ``i``, 50 ms later."""
    plain = Answer(
        time_s=FRAME_S * i + 0.05,
        stamp_ns=i * 100_000_000,
        selection=1,
        state=state,
        measured=True,
        valid=True,
        box=BOX,
        presence=1.0,
        quality=0.9,
        age_s=0.0,
        reason="",
    )
    return replace(plain, **changes)


def flight(samples: list[Sample], answers: list[Answer]) -> FlightFigures:
    """Followed from second 1 to the last picture; selected at 0.2 s, answered at 0.45 s."""
    events = {"selected": 0.2, "answered": 0.45, "following": 1.0, "ended": samples[-1].time_s}
    record = FlightRecord(samples, answers, [], events)
    return figures(record, {"gimbal": 4.0, "bridge": 5.0, "tracker": 60.0}, SIZE)


def plain_flight(**changes) -> FlightFigures:
    return flight([sample(i, **changes) for i in range(101)], [answer(i) for i in range(101)])


def test_a_steady_flight():
    found = plain_flight()
    assert found.off_axis_rms_deg == pytest.approx(1.0)
    assert found.off_axis_p99_deg == pytest.approx(1.0)
    assert found.followed_s == pytest.approx(9.0)
    assert found.tracking_s == pytest.approx(9.0, abs=FRAME_S)
    assert (found.coasting_s, found.lost_s, found.wrong_s, found.outside_s, found.returns) == (0, 0, 0, 0, 0)
    assert found.selection_to_box_s == pytest.approx(0.25)
    assert found.image_to_box_median_s == pytest.approx(0.05)
    assert found.images_per_s == pytest.approx(10.0, rel=0.02)


def test_the_first_moments_do_not_count_for_the_angle():
    samples = [
        sample(i, off_axis=math.radians(30.0 if FRAME_S * i < 1.0 + SETTLE_S - 0.01 else 1.0))
        for i in range(101)
    ]
    assert flight(samples, [answer(0)]).off_axis_max_deg == pytest.approx(1.0)


def test_losses_and_returns_are_counted_also_through_acquiring():
    states = [TrackState.TRACKING] * 30 + [TrackState.COASTING] * 10 + [TrackState.LOST] * 20
    states += [TrackState.ACQUIRING] * 3 + [TrackState.TRACKING] * 38
    found = flight([sample(i) for i in range(101)], [answer(i, s) for i, s in enumerate(states)])
    assert found.coasting_s == pytest.approx(1.0)
    assert found.lost_s == pytest.approx(2.0)
    assert found.returns == 1


def test_a_box_on_something_else_and_one_on_nothing_are_wrong():
    answers = [answer(i) for i in range(101)]
    answers[40:50] = [answer(i, box=(0.0, 0.0, 40.0, 40.0)) for i in range(40, 50)]
    samples = [sample(i) for i in range(101)]
    samples[60:65] = [sample(i, box=None, visible_px=0) for i in range(60, 65)]
    found = flight(samples, answers)
    assert found.wrong_s == pytest.approx(1.5)
    assert found.hidden_s == pytest.approx(0.5)


@pytest.mark.parametrize(("u", "v"), [(-1.0, 100.0), (640.0, 100.0), (100.0, 360.0), (math.nan, math.nan)])
def test_a_target_outside_the_picture_is_told_and_not_called_hidden(u, v):
    samples = [sample(i) for i in range(101)]
    samples[50:60] = [sample(i, u=u, v=v, box=None, visible_px=0) for i in range(50, 60)]
    found = flight(samples, [answer(i) for i in range(101)])
    assert found.outside_s == pytest.approx(1.0)
    assert found.hidden_s == 0.0


def test_a_flight_that_ended_at_once_has_no_figures():
    with pytest.raises(ValueError, match="settled"):
        flight([sample(i) for i in range(15)], [])


def test_a_slow_computer_is_named_and_a_quick_one_is_not():
    assert slowness(plain_flight(), 10.0) == ""
    assert "10.1 of 30" in slowness(plain_flight(), 30.0)
    late = flight([sample(i) for i in range(101)], [answer(i, time_s=FRAME_S * i + 0.6) for i in range(101)])
    assert "600 ms" in slowness(late, 10.0)


def test_the_table_has_both_nodes_cpu_together():
    rows = dict(summary(plain_flight()))
    assert "9.0 % of a core" in rows["CPU of gimbal controller + bridge"]
    assert rows["target outside the image"] == "never"


def test_a_record_is_read_as_it_was_written(tmp_path):
    writer = RecordWriter(tmp_path)
    writer.write(sample(3))
    writer.write(answer(3, age_s=None, box=None))
    writer.event("following", 1.5)
    writer.close()
    record = read_record(tmp_path)
    assert record.events == {"following": 1.5}
    assert replace(record.samples[0], box=tuple(record.samples[0].box)) == sample(3)
    assert record.answers == [answer(3, age_s=None, box=None)]


def test_the_load_of_a_process_is_its_share_of_one_core():
    first, last = {"tracker": 2.0, "gimbal": 0.5}, {"tracker": 14.0, "gimbal": 0.75}
    assert load_percent(first, last, 10.0) == {"tracker": 120.0, "gimbal": 2.5}
