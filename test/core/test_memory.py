"""Which frames are kept and attended to, by the rule that flies and by those of the references."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from efftam_ros.core.memory import MemoryBank, RankedFrames, Record
from efftam_workshop.policies.reference import RecentFrames, SamuraiFrames


def test_ranks_have_no_holes_after_a_gap():
    rule = RankedFrames(temporal_rows=7, recent=3, max_maps=7, max_pointers=16)
    attention = rule.attention([Record(t, t == 0, 0.9, 1.0) for t in (0, 1, 2, 40)], 41)
    assert attention.maps == ((0, 6), (1, 2), (2, 1), (40, 0))
    assert attention.pointers == (0, 40, 2, 1)


@pytest.mark.parametrize(("max_maps", "recent"), [(7, ((9, 2), (10, 1), (11, 0))), (2, ((11, 0),)), (1, ())])
def test_the_prompt_is_attended_to_and_what_there_is_room_for(max_maps, recent):
    rule = RankedFrames(7, recent=3, max_maps=max_maps, max_pointers=16)
    attention = rule.attention([Record(t, t == 0, 0.9, 1.0) for t in range(12)], 12)
    assert attention.maps == ((0, 6), *recent)
    assert attention.pointers == (0, *range(11, 0, -1))


def ranked(spaced, frames: int, recent: int = 3):
    """Attention after ``frames`` frames, of which the first is the prompt and ``spaced`` are spaced ones."""
    rule = RankedFrames(temporal_rows=7, recent=recent, max_maps=7, max_pointers=16)
    records = [Record(t, t == 0, 0.9, 1.0, is_spaced=t in spaced) for t in range(frames)]
    return rule.attention(records, frames)


EVERY_FIFTH = range(1, 30, 5)


@pytest.mark.parametrize(
    ("spaced", "frames", "recent", "attended"),
    [
        (EVERY_FIFTH, 22, 3, (11, 16, 21)),  # the newest is a spaced one
        *((EVERY_FIFTH, frames, 3, seen) for frames, seen in ((21, (6, 11, 20)), (17, (6, 11, 16)))),
        *(
            (EVERY_FIFTH, frames, 3, (1, *seen))
            for frames, seen in ((16, (6, 15)), (9, (7, 8)), (11, (9, 10)))
        ),
        *((EVERY_FIFTH, frames, 3, tuple(range(1, frames))) for frames in (1, 2, 4)),  # all there are
        (range(30), 20, 3, (17, 18, 19)),
        *((EVERY_FIFTH, 20, 1, (19,)), (EVERY_FIFTH, 20, 0, ())),
    ],
)
def test_the_newest_frame_and_spaced_ones_are_attended_to(spaced, frames, recent, attended):
    """Of the spaced ones that which lies nearest to the newest is left out: it may be the image before. The
    last frames stand in for those that are missing."""
    attention = ranked(spaced, frames, recent)
    assert attention.maps == ((0, 6), *zip(attended, reversed(range(len(attended))), strict=True))
    assert attention.pointers == (0, *range(frames - 1, max(0, frames - 16), -1))


rules = st.one_of(
    st.builds(RecentFrames, temporal_rows=st.integers(2, 7), max_pointers=st.integers(1, 16)),
    st.just(SamuraiFrames()),
    st.builds(
        RankedFrames,
        temporal_rows=st.just(7),
        recent=st.integers(0, 6),
        max_maps=st.integers(1, 7),
        max_pointers=st.integers(1, 16),
    ),
)


steps_of_frames = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([False, False, False, True]), st.floats(0.3, 0.9)),
    min_size=30,
    max_size=90,
)


@given(rules, steps_of_frames)
@example(RankedFrames(7, 6, 7, 1), [(1, False, 0.9)] * 30)  # more maps than pointers
@settings(max_examples=80)
def test_a_ring_of_24_never_runs_out_and_never_loses_what_is_attended_to(rule, steps):
    bank, t = MemoryBank(rule, 24), 0
    owner = {bank.add(Record(0, True, 0.9, 1.0)): 0}
    everything = [Record(0, True, 0.9, 1.0)]
    for gap, is_spaced, quality in steps:
        t += gap
        want = rule.attention(everything, t)
        plan = bank.plan_of(t)
        assert [(owner[s], r) for s, r in zip(plan.slots, plan.rows, strict=True)] == list(want.maps)
        assert [owner[s] for s in plan.pointer_slots] == list(want.pointers)
        record = Record(t, False, quality, 1.0, is_spaced=is_spaced)
        everything.append(record)
        owner[bank.add(record)] = t


def test_frames_count_from_the_prompt_also_those_that_are_not_kept():
    memory = MemoryBank(RecentFrames(), 24)
    prompted = memory.store(0, 0.9, 3.0, prompted=True)
    first = memory.store(0, 0.9, 3.0)
    memory.skip()
    memory.make_plan()
    plan = memory.plan  # of frame 3: the prompt on the last row, frame 1 two frames ago
    assert list(zip(plan.slots, plan.rows, strict=True)) == [(prompted, 6), (first, 1)]


def test_frames_are_spaced_by_150_ms_also_after_stamps_that_went_back():
    memory = MemoryBank(RecentFrames(), 24)
    for stamp_ms in (1000, 1000, 1149.999999, 1150, 1299, 1300, 200, 300, 350):
        memory.store(round(stamp_ms * 1e6), 0.9, 3.0)
    spaced = [record.is_spaced for record in memory.records]
    assert spaced == [True, False, False, True, False, True, True, False, True]


def test_what_is_forgotten_is_what_came_from_then_on_but_the_prompt():
    for first, left in ((3, [0, 1, 2]), (0, [0])):
        bank = MemoryBank(RecentFrames(), 8)
        for frame in range(6):
            bank.add(Record(frame, prompted=frame == 0, quality=0.9, presence_logit=5.0))
        bank.forget_from(first)
        assert [record.frame for record in bank.records] == left
    for frame in range(6, 10):  # their slots are free again
        bank.add(Record(frame, prompted=False, quality=0.9, presence_logit=5.0))
