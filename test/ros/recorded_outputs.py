"""The node's outputs without a node: their publishers keep what is published."""

from __future__ import annotations

import pytest
from support.reasons import assert_numbered

from efftam_ros.ros.tracker import publishing


class Topic:
    """A publisher with a subscriber. ``fault``: raised by `publish`."""

    fault: Exception | None = None

    def __init__(self, name: str, published: list) -> None:
        self.name, self._published = name, published

    def publish(self, message) -> None:
        if self.fault is not None:
            raise self.fault
        assert_numbered(message)
        self._published.append((self.name, message))

    def get_subscription_count(self) -> int:
        return 1

    def wait_for_all_acked(self, timeout) -> None:
        pass


class RecordedOutputs(publishing.Outputs):
    """``published``: (topic, message) in order; ``topics``: the publishers, by name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.published: list[tuple[str, object]] = []
        self.topics: dict[str, Topic] = {}
        patch.setattr(publishing, "make_publisher", lambda node, kind, name, qos: self._topic(name))
        super().__init__(self, with_detections=False)

    def _topic(self, name: str) -> Topic:
        self.topics[name] = Topic(name, self.published)
        return self.topics[name]

    def destroy_publisher(self, topic: Topic) -> None:
        """As the node's: it can't publish any more."""
        topic.fault = RuntimeError(f"{topic.name} was destroyed")

    def sent(self, topic: str) -> list:
        return [message for name, message in self.published if name == topic]
