"""When the publishers of a topic are known: discovery may tell of an endpoint before its node."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from simulation.bag_player import wait_until_heard

UNKNOWN = "_NODE_NAME_UNKNOWN_"


class Node:
    """Tells of the publishers in ``rounds``, one after the other; every call is answered at once."""

    def __init__(self, *rounds: tuple[str, ...]) -> None:
        self.rounds, self.called = list(rounds), []

    def resolve_topic_name(self, topic):
        return f"/{topic}"

    def get_publishers_info_by_topic(self, topic):
        names = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        return [SimpleNamespace(node_namespace="/", node_name=name) for name in names]

    def create_client(self, kind, name):
        self.called.append(name)
        return SimpleNamespace(call_async=lambda request: SimpleNamespace(done=lambda: True))

    def destroy_client(self, client):
        pass


@pytest.mark.parametrize("before", [(), (UNKNOWN,), ("one", UNKNOWN)])
def test_every_publisher_is_asked_once_all_have_names(before):
    node = Node(before, ("two", "one"))
    wait_until_heard(node, SimpleNamespace(spin_once=lambda timeout_sec: None), ["bbox"], 60.0)
    assert node.called == ["/one/get_parameters", "/two/get_parameters"]
