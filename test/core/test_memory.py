"""Which frames are kept and attended to (SAMURAI's rule has its golden trace in test_samurai_trace)."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from efftam_ros.core.errors import InputError
from efftam_ros.core.memory import MemoryBank, RankedFrames, RecentFrames, Record
from efftam_ros.core.policies.reference import SamuraiFrames


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


def test_a_second_prompt_adds_a_map_on_the_last_row():
    """Seven frames after a second prompt the reference attends to 8 maps (measured), later to 17 pointers."""
    rule = RecentFrames()
    records = [Record(t, t in (0, 10), 0.9, 1.0) for t in range(18)]
    attention = rule.attention(records, 18)
    assert attention.maps[:2] == ((0, 6), (10, 6))
    assert len(attention.maps) == 8
    assert len(attention.pointers) == 16  # the prompt at frame 10 is not repeated among the last fifteen
    records += [Record(t, False, 0.9, 1.0) for t in range(18, 30)]
    assert len(rule.attention(records, 30).pointers) == 17


def test_ranks_have_no_holes_after_a_gap():
    rule = RankedFrames(temporal_rows=7, recent=3, max_maps=7, max_pointers=16)
    attention = rule.attention([Record(t, t == 0, 0.9, 1.0) for t in (0, 1, 2, 40)], 41)
    assert attention.maps == ((0, 6), (1, 2), (2, 1), (40, 0))
    assert attention.pointers == (0, 40, 2, 1)


@pytest.mark.parametrize(
    ("max_maps", "max_prompts", "attended"),
    [(7, None, (0, 9)), (7, 2, (0, 9)), (7, 1, (9,)), (1, None, (9,))],
)
def test_of_several_prompts_the_newest_and_if_there_is_room_the_first_are_attended_to(
    max_maps, max_prompts, attended
):
    rule = RankedFrames(7, recent=3, max_maps=max_maps, max_pointers=16, max_prompts=max_prompts)
    attention = rule.attention([Record(t, t in (0, 4, 9), 0.9, 1.0) for t in range(12)], 12)
    recent = ((8, 2), (10, 1), (11, 0)) if max_maps > 1 else ()
    assert attention.maps == (*((t, 6) for t in attended), *recent)
    assert attention.pointers == (*attended, 11, 10, 8, 7, 6, 5, 3, 2, 1)


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


most_prompts = st.sampled_from([None, 1, 2])
rules = st.one_of(
    st.builds(
        RecentFrames,
        temporal_rows=st.integers(2, 7),
        max_pointers=st.integers(1, 16),
        max_prompts=most_prompts,
    ),
    st.builds(SamuraiFrames, max_prompts=most_prompts),
    st.builds(
        RankedFrames,
        temporal_rows=st.just(7),
        recent=st.integers(0, 6),
        max_maps=st.integers(1, 7),
        max_pointers=st.integers(1, 16),
        max_prompts=most_prompts,
    ),
)


steps_of_frames = st.lists(
    st.tuples(st.integers(1, 4), *[st.sampled_from([False, False, False, True])] * 2, st.floats(0.3, 0.9)),
    min_size=30,
    max_size=90,
)


def has_room_for_prompt(bank: MemoryBank) -> bool:
    try:
        bank.require_room_for_prompt()
    except InputError:
        return False
    return True


@given(rules, steps_of_frames)
@example(RankedFrames(7, 6, 7, 1), [(1, False, False, 0.9)] * 30)  # more maps than pointers
@settings(max_examples=80)
def test_a_ring_of_24_never_runs_out_and_never_loses_what_is_attended_to(rule, steps):
    bank, t = MemoryBank(rule, 24), 0
    owner = {bank.add(Record(0, True, 0.9, 1.0)): 0}
    everything = [Record(0, True, 0.9, 1.0)]
    for gap, is_spaced, is_prompted, quality in steps:
        t += gap
        want = rule.attention(everything, t)
        plan = bank.plan_of(t)
        assert [(owner[s], r) for s, r in zip(plan.slots, plan.rows, strict=True)] == list(want.maps)
        assert [owner[s] for s in plan.pointer_slots] == list(want.pointers)
        prompted = is_prompted and has_room_for_prompt(bank)
        record = Record(t, prompted, quality, 1.0, is_spaced=is_spaced)
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


def test_what_is_forgotten_is_what_came_from_then_on_but_prompts():
    bank = MemoryBank(RecentFrames(), 8)
    for frame in range(6):
        bank.add(Record(frame, prompted=frame in (0, 4), quality=0.9, presence_logit=5.0))
    bank.forget_from(3)
    assert [record.frame for record in bank.records] == [0, 1, 2, 4]
    for frame in range(6, 10):  # their slots are free again
        bank.add(Record(frame, prompted=False, quality=0.9, presence_logit=5.0))
