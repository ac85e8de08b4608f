"""Which frames the reference predictor attends to (SAMURAI's rule has its golden trace)."""

from efftam_ros.core.memory import MemoryBank, Record
from efftam_workshop.policies.reference import RecentFrames


def filled(rule, frames, slots=24, prompted=(0,)):
    bank = MemoryBank(rule, slots)
    for t in frames:
        bank.add(Record(t, t in prompted, 0.9, 3.0))
    return bank


def test_the_reference_attends_to_the_prompt_and_the_last_frames():
    """Counts measured on the reference predictor: T = min(t, 7), P = min(t, 16), one prompt at frame 0."""
    for frame in range(1, 41):
        plan = filled(RecentFrames(), range(frame)).plan_of(frame)
        assert len(plan.slots) == len(plan.rows) == min(frame, 7)
        assert len(plan.pointer_slots) == min(frame, 16)


def test_the_reference_gives_rows_by_age_and_pointers_newest_first():
    attention = RecentFrames().attention([Record(t, t == 0, 0.9, 1.0) for t in range(10)], 10)
    assert attention.maps == ((0, 6), (4, 5), (5, 4), (6, 3), (7, 2), (8, 1), (9, 0))
    assert attention.pointers == (0, 9, 8, 7, 6, 5, 4, 3, 2, 1)
