"""What the node knows of its targets, after any sequence of selections, answers, clears and switches."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.reasons import because

from efftam_ros.core.types import Track, TrackState
from efftam_ros.messages.fields import About
from efftam_ros.ros.tracker.table import PublishedAnswer, TargetTable

IDS = st.integers(0, 2)
STATES = st.sampled_from(list(TrackState))


@dataclass
class Known:
    """Of a target that was answered. ``state``: of its last answer; ``shown``: what has become of it since;
    ``logged``: the last state that was logged."""

    stamp_ns: int
    state: TrackState
    selection: int
    steered: bool
    shown: TrackState | None = None
    logged: TrackState = TrackState.IDLE


class Table(RuleBasedStateMachine):
    """The model: one entry for each target that was answered, and the numbers of the selections."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.known, self.numbers = TargetTable(), dict[int, Known](), dict[int, int]()
        self.steered, self.stamp_ns = 0, 0

    @rule(one=IDS, number=st.integers(1, 9))
    def select(self, one: int, number: int) -> None:
        self.table.select(one, number)
        self.numbers[one] = number

    @rule(one=IDS, state=STATES)
    def answer(self, one: int, state: TrackState) -> None:
        self.stamp_ns += 1
        about = About(None, self.numbers.get(one, 0), one, one == self.steered)
        row = self.table.keep(one, PublishedAnswer(about, Track(self.stamp_ns, state), 0.0, 0.0))
        assert row.taken_back_s is None
        row.taken_back_s = 1.0  # until the next answer
        for other in [o for o, k in self.known.items() if o != one and k.state is TrackState.IDLE]:
            del self.known[other]
            self.numbers.pop(other, None)
        self.numbers.setdefault(one, 0)
        before = self.known.get(one)
        kept = (None, TrackState.IDLE) if before is None else (before.shown, before.logged)
        self.known[one] = Known(self.stamp_ns, state, about.selection, about.steered, *kept)

    @rule(one=IDS)
    def clear(self, one: int) -> None:
        said, known = self.table.clear(one, because("cleared")), self.known.get(one)
        assert (said is None) == (known is None)
        if said is not None and known is not None:
            known.state, known.selection = TrackState.IDLE, 0
            assert said.track.reason == "cleared"

    @rule(one=IDS)
    def steer(self, one: int) -> None:
        self.table.steer(one)
        self.steered = one
        for other, known in self.known.items():
            known.steered = other == one

    @rule(one=IDS, state=STATES)
    def change(self, one: int, state: TrackState) -> None:
        known = self.known.get(one)
        if one in self.numbers and known is None:
            return  # it has no state before its first answer
        said = self.table.change(one, Track(0, state))
        if known is None:
            assert said == ""
            return
        assert bool(said) == (state is not known.logged)
        assert said == "" or said.endswith(f"{known.logged.name} -> {state.name}")
        known.shown = known.logged = state

    @invariant()
    def answers_are_those_of_the_model(self) -> None:
        found = {
            one: (a.track.stamp_ns, a.track.state, a.about.selection, a.about.steered)
            for one, a in self.table.answers.items()
        }
        assert found == {
            one: (k.stamp_ns, k.state, k.selection, k.steered) for one, k in sorted(self.known.items())
        }
        assert {one: row.selection for one, row in self.table.rows.items()} == self.numbers

    @invariant()
    def the_steered_target_is_shown_first(self) -> None:
        shown = [one for one, known in self.known.items() if known.shown is not None]
        if self.steered in shown:
            assert self.table.shown is not None
            assert self.table.shown[1].state is self.known[self.steered].shown


Table.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
test_what_is_known_of_targets_is_what_the_model_says = Table.TestCase
