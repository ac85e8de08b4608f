"""Subscription to images: selects the topic and reliability, and reports who publishes there.

A camera driver may start after this node, restart, or offer another reliability than before; the subscription
follows. The new subscription is created before the old one is destroyed, so that no image is missed in
between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

from efftam_ros.core.errors import InputError, shown
from efftam_ros.messages.bearing import camera_info_beside
from efftam_ros.package_files import ZENOH, middleware
from efftam_ros.ros.common.nodes import UNKNOWN_NODE
from efftam_ros.ros.common.transports import BY_TYPE, TRANSPORTS

# Most publishers or topics listed in one message.
MOST_NAMED = 3
# How long the old subscription is kept while the new one has delivered nothing, s.
OVERLAP_S = 1.0


def message_class(transport: str) -> Any:
    """The class of the transport's messages. Raises InputError where their package is not installed."""
    package, _, name = TRANSPORTS[transport].message_type.split("/")
    try:
        return getattr(import_module(f"{package}.msg"), name)
    except ModuleNotFoundError:
        raise InputError(
            f"image_transport {transport} needs {package}, which is not installed; run: apt-get install"
            f" ros-$ROS_DISTRO-{package.replace('_', '-')}"
        ) from None


@dataclass
class _Subscription:
    """``made_s``: creation time on the steady clock; ``delivered``: it has delivered an image."""

    topic: str
    reliability: ReliabilityPolicy
    made_s: float
    handle: Any = None
    delivered: bool = False


class ImageInput:
    """Calls ``receive`` with every image message, in the executor's thread; call `look` a few times per
    second.

    ``reliability``: ``auto`` is reliable if every publisher offers it, else best effort, which is compatible
    with all. ``callbacks`` gives the event callbacks for a topic. Raises InputError where the transport's
    messages are not installed.
    """

    def __init__(
        self,
        node: Node,
        transport: str,
        reliability: str,
        receive: Callable[[Any], None],
        callbacks: Callable[[str], Any],
    ) -> None:
        self._node, self._receive, self._callbacks = node, receive, callbacks
        self._transport, self._message_class = TRANSPORTS[transport], message_class(transport)
        self._type, suffix = self._transport.message_type, self._transport.suffix
        self._stamp_of = attrgetter(self._transport.stamp)
        named = str(node.resolve_topic_name("image"))
        is_transport = suffix != "" and named.endswith(suffix)
        self.base_topic = named.removesuffix(suffix) if is_transport else named
        self._given = is_transport
        self._wanted = self._overridden(reliability)
        self._last_stamp: Any = None
        self._old: list[_Subscription] = []
        topic = self._choose_topic()
        self._current = self._subscribe(topic, self._choose_reliability(topic, ReliabilityPolicy.BEST_EFFORT))

    @property
    def topic(self) -> str:
        return self._current.topic

    @property
    def camera_info_topic(self) -> str:
        """Topic of the calibration: the remapped ``camera_info``, else the one beside the images.

        A remap to the default name looks like none; that name is taken while it alone is published.
        """
        resolved = str(self._node.resolve_topic_name("camera_info"))
        beside = camera_info_beside(self.base_topic)
        if resolved != self._node.resolve_topic_name("camera_info", only_expand=True):
            return resolved
        count = self._node.count_publishers
        return resolved if count(resolved) and not count(beside) else beside

    @property
    def facts(self) -> dict[str, str]:
        """Topic, reliability and publishers, as values for diagnostics."""
        reliability = "reliable" if self._current.reliability is ReliabilityPolicy.RELIABLE else "best effort"
        return {
            "image topic": self.topic,
            "image reliability": f"{reliability} (asked: {self._wanted})",
            "image publishers": self._named(self._publishers(self.topic)),
        }

    @property
    def mixed(self) -> str:
        """Warning that images of several publishers may be mixed, in one line; empty while there is one."""
        found = [info for info in self._publishers(self.topic) if info.topic_type == self._type]
        # See `other_publishers`.
        if len(found) < 2 or any(info.node_name == UNKNOWN_NODE for info in found):
            return ""
        return (
            f"{len(found)} publishers on {self.topic} ({self._named(found)}): if more than one of them sends,"
            " their images are mixed and no target can be followed; stop the others, or remap image"
        )

    def look(self) -> None:
        """Check the publishers, and resubscribe if the topic or the reliability has to change."""
        topic = self._choose_topic()
        reliability = self._choose_reliability(topic, self._current.reliability)
        if (topic, reliability) != (self._current.topic, self._current.reliability):
            self._old.append(self._current)
            self._current = self._subscribe(topic, reliability)
        elif self._current.delivered or time.monotonic() - self._current.made_s > OVERLAP_S:
            self._end_old()

    def close(self) -> None:
        self._end_old()
        self._node.destroy_subscription(self._current.handle)

    def explain(self, have_come: bool = False) -> str:
        """Explain why no image arrives, as far as the publishers show: what was found, and the remedy.

        ``have_come``: images came before, so that the topic, its type and the way of its images are right.
        """
        found = self._publishers(self.topic)
        if not found:
            return f"nothing publishes {self.topic} any more" if have_come else self._explain_nobody()
        if all(info.topic_type != self._type for info in found):
            return (
                f"{self.topic} is published as {found[0].topic_type} ({self._named(found)}), this node reads"
                f" {self._type}; {self._other_transport(found[0].topic_type)}"
            )
        offered = [info for info in found if info.topic_type == self._type]
        is_reliable = self._current.reliability is ReliabilityPolicy.RELIABLE
        # Zenoh delivers whatever the two reliabilities are.
        matched_by_qos = not middleware().startswith(ZENOH)
        if is_reliable and matched_by_qos and not all(map(_is_reliable, offered)):
            return (
                f"{self.topic} is published best effort ({self._named(offered)}) and asked for reliably:"
                " nothing arrives; set image_reliability to auto"
            )
        if have_come:
            named = self._named(offered)
            return f"the publisher of {self.topic} ({named}) is there, and nothing arrives from it"
        # Only where images are lost.
        from efftam_ros.ros.common.large_images import CAMERA_NODE, large_image_remedy

        if {info.node_name for info in offered} == {CAMERA_NODE}:
            return f"no image of {CAMERA_NODE} has arrived: its log says if it waits for its stream"
        return (
            f"{self.topic} is published ({self._named(offered)}) and nothing arrives: the camera sends"
            f" nothing, or all is lost on the way; {large_image_remedy(is_reliable)}"
        )

    def _explain_nobody(self) -> str:
        for transport in TRANSPORTS.values():
            other = self.base_topic + transport.suffix
            if any(info.topic_type == transport.message_type for info in self._publishers(other)):
                remedy = self._other_transport(transport.message_type)
                return f"nothing publishes {self.topic}, but {other} is published; {remedy}"
        images = [
            f"{shown(name)[1:-1]} ({types[0]})"
            for name, types in self._node.get_topic_names_and_types()
            if types[0] in BY_TYPE and self._is_camera(name)
        ]
        if not images:
            found = f"nothing publishes {self.topic}; start the camera driver, or remap image to its topic"
            router = "; rmw_zenoh finds other nodes through its router: ros2 run rmw_zenoh_cpp rmw_zenohd"
            return found + (router if middleware().startswith(ZENOH) else "")
        named = ", ".join(images[:MOST_NAMED]) + (", ..." if len(images) > MOST_NAMED else "")
        return f"nothing publishes {self.topic}; images are published on {named}: remap image to one of them"

    def _is_camera(self, topic: str) -> bool:
        """Whether another node publishes the topic: a tracker's own mask and overlay do not count."""
        return any(info.node_name != self._node.get_name() for info in self._publishers(topic))

    @staticmethod
    def _other_transport(published: str) -> str:
        known = BY_TYPE.get(published)
        return f"set image_transport to {known}" if known else "remap image to another topic"

    def _publishers(self, topic: str) -> list[Any]:
        return list(self._node.get_publishers_info_by_topic(topic))

    @staticmethod
    def _named(found: list[Any]) -> str:
        named = []
        for info in found[:MOST_NAMED]:
            name = "name not known yet" if info.node_name == UNKNOWN_NODE else shown(info.node_name)[1:-1]
            named.append(f"{name}: {'reliable' if _is_reliable(info) else 'best effort'}")
        return ", ".join(named) + (", ..." if len(found) > MOST_NAMED else "")

    def _choose_topic(self) -> str:
        named = self.base_topic + self._transport.suffix
        if self._given:
            return named
        # Some drivers publish compressed images on a topic without the transport's name.
        itself = any(info.topic_type == self._type for info in self._publishers(self.base_topic))
        return self.base_topic if itself else named

    def _choose_reliability(self, topic: str, otherwise: ReliabilityPolicy) -> ReliabilityPolicy:
        if self._wanted != "auto":
            reliable = self._wanted == "reliable"
            return ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
        found = [info for info in self._publishers(topic) if info.topic_type == self._type]
        if not found:
            return otherwise
        return ReliabilityPolicy.RELIABLE if all(map(_is_reliable, found)) else ReliabilityPolicy.BEST_EFFORT

    def _overridden(self, reliability: str) -> str:
        """The requested reliability; a QoS override parameter takes precedence over ``image_reliability``."""
        topic = self.base_topic + self._transport.suffix
        name = f"qos_overrides.{topic}.subscription.reliability"
        if not self._node.has_parameter(name):
            self._node.declare_parameter(name, "")
        given = str(self._node.get_parameter(name).value)
        return given if given in ("reliable", "best_effort") else reliability

    def _subscribe(self, topic: str, reliability: ReliabilityPolicy) -> _Subscription:
        made = _Subscription(topic, reliability, time.monotonic())
        made.handle = self._node.create_subscription(
            self._message_class,
            topic,
            partial(self._on_image, made),
            QoSProfile(depth=self._transport.depth, reliability=reliability),
            event_callbacks=self._callbacks(topic),
            qos_overriding_options=QoSOverridingOptions([QoSPolicyKind.DEPTH, QoSPolicyKind.HISTORY]),
        )
        return made

    def _on_image(self, source: _Subscription, message: Any) -> None:
        if source is self._current:
            source.delivered = True
        elif self._current.delivered:
            return
        if self._old and self._stamp_of(message) == self._last_stamp:
            return  # already received through another subscription
        self._last_stamp = self._stamp_of(message)
        self._receive(message)

    def _end_old(self) -> None:
        for subscription in self._old:
            self._node.destroy_subscription(subscription.handle)
        self._old.clear()


def _is_reliable(info: Any) -> bool:
    return bool(info.qos_profile.reliability == ReliabilityPolicy.RELIABLE)
