"""A tracker that was started again is no second one, whatever the graph still holds of the killed process."""

from __future__ import annotations

from efftam_ros.ros.common.publishing_nodes import LEASE_S, PublishingNodes

A, B = "/a/efftam_tracker", "/b/efftam_tracker"


def test_a_killed_process_beside_its_successor_is_one_tracker_that_was_started_again():
    graph = PublishingNodes()
    assert graph.look([(A, b"1")], 0.0) == ((A,), False)
    assert graph.look([(A, b"1"), (A, b"2")], 10.0) == ((A,), True)
    for now_s in (10.5, 20.0, 10.0 + LEASE_S):
        assert graph.look([(A, b"1"), (A, b"2")], now_s) == ((A,), False)
    assert graph.look([(A, b"2")], 30.0) == ((A,), False)


def test_two_that_stay_are_two_and_different_names_are_so_at_once():
    graph = PublishingNodes()
    graph.look([(A, b"1"), (A, b"2")], 0.0)
    assert graph.look([(A, b"1"), (A, b"2")], LEASE_S + 0.1) == ((A, A), False)
    assert graph.look([(A, b"1"), (B, b"2")], 100.0) == ((A, B), False)


def test_a_restart_is_noticed_after_a_time_without_any():
    graph = PublishingNodes()
    graph.look([(A, b"1")], 0.0)
    assert graph.look([], 5.0) == ((), False)
    assert graph.look([(A, b"2")], 90.0) == ((A,), True)
    assert graph.look([], 100.0) == ((), False)
    assert graph.look([(A, b"2")], 120.0) == ((A,), False)  # the same: nobody looked meanwhile
