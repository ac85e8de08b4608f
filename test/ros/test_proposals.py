"""When a proposal is computed: not at the cost of the targets that are followed."""

from __future__ import annotations

from efftam_ros.ros.tracker.frame_buffer import PROPOSALS_APART_S, Command, Proposals, Task


def taken(proposals: Proposals, now_s: float, followed: bool, newest: int = 5, furthest: int = 5):
    return proposals.take(now_s, followed, furthest, newest)


def test_while_a_target_is_followed_there_is_one_in_a_second():
    proposals, request = Proposals(), Task(None, command=Command(None, 0))
    for _ in range(2):
        proposals.put(request)
        assert taken(proposals, 10.0, True) in (request, None)
    assert proposals.task is request  # it waits
    assert taken(proposals, 10.0 + 0.9 * PROPOSALS_APART_S, True) is None
    assert taken(proposals, 10.0 + PROPOSALS_APART_S, True) is request
    assert proposals.task is None


def test_without_a_target_requests_and_images_take_turns():
    proposals, request = Proposals(), Task(None, command=Command(None, 0))
    proposals.put(request)
    assert taken(proposals, 10.0, False, newest=6) is request
    proposals.put(request)
    assert taken(proposals, 10.0, False, newest=6) is None
    assert taken(proposals, 10.0, False, newest=6, furthest=6) is request


def test_a_newer_request_takes_the_place_of_the_one_that_waits():
    proposals = Proposals()
    assert proposals.put(Task(None, command=Command(None, 0))) is None
    assert proposals.put(newer := Task(None, command=Command(None, 0))) == Command(None, 0)
    assert proposals.task is newer
