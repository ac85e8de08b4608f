"""Subscription to images: chooses the topic and the reliability, and reports which nodes publish the images.

A camera driver may start after this node, restart, or offer another reliability than before. The old
subscription is then replaced by a new one that fits. An image that is sent at that moment may be missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

from efftam_ros.core.errors import InputError, shown
from efftam_ros.messages.bearing import camera_info_beside
from efftam_ros.package_files import ZENOH, middleware
from efftam_ros.packages import missing_package
from efftam_ros.ros.common.publishing_nodes import UNKNOWN_NODE, PublishingNodes, identities
from efftam_ros.ros.common.transports import BY_TYPE, TRANSPORTS

# Largest number of publishers or topics that one message lists.
MAX_NAMED = 3
# If a publisher exists and no image arrives from it for DEAF_S seconds, the subscription is made again. This
# time doubles at each new subscription, up to LONGEST_DEAF_S.
DEAF_S, LONGEST_DEAF_S = 2.0, 60.0
# A process that has the DDS participant number of a killed process may receive no image. So this process
# should take another number if no image has arrived RENEWAL_S seconds after the subscription was made again
# for the first time. This time is longer than a slow camera needs to start.
RENEWAL_S = 10.0


# The transports whose messages contain packets of a coded video.
VIDEOS = ("ffmpeg", "foxglove")


def message_class(transport: str) -> Any:
    """Return the class of the transport's messages.

    Raises InputError if the ROS package of the messages, or the Python package that decodes them, is not
    installed.
    """
    found = _message_class(transport)
    if transport in VIDEOS:
        # Imported now, so that a missing package is reported at the start and not at the first packet.
        try:
            import_module("av")
        except ModuleNotFoundError as error:
            package = missing_package(error)
            name = error.name if package is None else package.pip
            raise InputError(
                f"image_transport {transport} needs the Python package {name} to decode, which is not"
                f" installed for {sys.executable}; run: {sys.executable} -m pip install {name}"
            ) from None
    return found


def _message_class(transport: str) -> Any:
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
    """A subscription to images. ``made_s``: time of its creation, s on the steady clock."""

    topic: str
    reliability: ReliabilityPolicy
    made_s: float
    handle: Any = None


class ImageInput:
    """The subscription to the topic `image`. The owner must call `look` a few times per second.

    ``transport``: a key of `TRANSPORTS`. ``reliability``: ``reliable``, ``best_effort`` or ``auto``, which is
    reliable if every publisher offers reliable delivery. Otherwise ``auto`` is best effort, which every
    publisher can serve. ``receive`` is called with every image message, in the executor's thread.
    ``callbacks`` returns the event callbacks for a topic. Raises InputError if the package of the transport's
    messages is not installed.
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
        named = str(node.resolve_topic_name("image"))
        is_transport = suffix != "" and named.endswith(suffix)
        self.base_topic = named.removesuffix(suffix) if is_transport else named
        self._given = is_transport
        self._wanted = self._overridden(reliability)
        self._cameras = PublishingNodes()
        # Arrival of the last image, s on the steady clock; None before the first image.
        self._arrived_s: float | None = None
        # When a publisher of the right type was first seen on the topic, s on the steady clock; None while
        # there is no such publisher.
        self._there_s: float | None = None
        self._patience_s, self._made_anew = DEAF_S, 0
        self._first_anew_s = 0.0
        topic = self._choose_topic()
        self._current = self._subscribe(topic, self._choose_reliability(topic, ReliabilityPolicy.BEST_EFFORT))

    @property
    def topic(self) -> str:
        return self._current.topic

    @property
    def camera_info_topic(self) -> str:
        """Topic of the camera's calibration.

        If the user remaps ``camera_info``, this is the remapped topic. Else it is the topic camera_info in
        the namespace of the image topic, see `camera_info_beside`. If only this node's own topic
        ``camera_info`` is published, that topic is used: a remap to its default name can't be recognised.
        """
        resolved = str(self._node.resolve_topic_name("camera_info"))
        beside = camera_info_beside(self.base_topic)
        if resolved != self._node.resolve_topic_name("camera_info", only_expand=True):
            return resolved
        count = self._node.count_publishers
        return resolved if count(resolved) and not count(beside) else beside

    @property
    def facts(self) -> dict[str, str]:
        """Topic, reliability and publishers of the image subscription, as values for diagnostics."""
        reliability = "reliable" if self._current.reliability is ReliabilityPolicy.RELIABLE else "best effort"
        return {
            "image topic": self.topic,
            "image reliability": f"{reliability} (requested: {self._wanted})",
            "image publishers": self._named(self._publishers(self.topic)),
        }

    @property
    def mixed(self) -> str:
        """One line that warns of mixed images of several publishers; empty while at most one publishes."""
        found = [info for info in self._publishers(self.topic) if info.topic_type == self._type]
        # A camera that was started again is not counted twice. A publisher may be discovered before the name
        # of its node: nothing is reported until all names are known.
        names, _ = self._cameras.look(identities(found), time.monotonic())
        if len(names) < 2 or any(info.node_name == UNKNOWN_NODE for info in found):
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
            self._replace(topic, reliability)
        self._listen_anew(time.monotonic())

    def _listen_anew(self, now_s: float) -> None:
        """Make the subscription again if a publisher exists and no image arrives from it."""
        if not any(info.topic_type == self._type for info in self._publishers(self.topic)):
            self._there_s = None
            return
        if self._there_s is None:
            self._there_s = now_s
        since_s = max(self._there_s, self._arrived_s or self._there_s, self._current.made_s)
        if now_s - since_s < self._patience_s:
            return
        self._patience_s = min(2 * self._patience_s, LONGEST_DEAF_S)
        self._first_anew_s = self._first_anew_s if self._made_anew else now_s
        self._made_anew += 1
        self._replace(self.topic, self._current.reliability)

    @property
    def is_receiving(self) -> bool:
        """Whether an image arrived within the last `DEAF_S` seconds."""
        return self._arrived_s is not None and time.monotonic() - self._arrived_s < DEAF_S

    @property
    def renewal(self) -> str:
        """Why this process should start again with another DDS participant number; empty if it should not.

        The process should do so if a publisher exists and no subscription has ever received an image from it.
        """
        if self._arrived_s is not None or not self._made_anew or self._there_s is None:
            return ""
        if time.monotonic() - max(self._first_anew_s, self._there_s) < RENEWAL_S:
            return ""
        return f"no image of {self.topic} has arrived, although the topic has a publisher: {self._anew}"

    @property
    def _anew(self) -> str:
        times = "once" if self._made_anew == 1 else f"{self._made_anew} times"
        return f"the subscription was renewed {times}"

    def close(self) -> None:
        self._node.destroy_subscription(self._current.handle)

    def explain(self, have_come: bool = False) -> str:
        """Return in one line why no image arrives and what to do, as far as the list of publishers shows it.

        ``have_come``: images arrived before, so the topic, its type and the transport of large images work.
        """
        found = self._publishers(self.topic)
        if not found:
            return (
                f"nothing publishes {self.topic} any more; check that the camera driver runs"
                if have_come
                else self._explain_nobody()
            )
        if all(info.topic_type != self._type for info in found):
            return (
                f"{self.topic} is published as {found[0].topic_type} ({self._named(found)}), but this node"
                f" reads {self._type}; {self._other_transport(found[0].topic_type)}"
            )
        offered = [info for info in found if info.topic_type == self._type]
        is_reliable = self._current.reliability is ReliabilityPolicy.RELIABLE
        # Zenoh also delivers from a best-effort publisher to a reliable subscription; DDS does not.
        matched_by_qos = not middleware().startswith(ZENOH)
        if is_reliable and matched_by_qos and not all(map(_is_reliable, offered)):
            return (
                f"{self.topic} is published best effort ({self._named(offered)}) and this node subscribes"
                " reliably, so no image arrives; set image_reliability to auto"
            )
        if have_come:
            named = self._named(offered)
            anew = f"; {self._anew}" if self._made_anew else ""
            return f"the publisher of {self.topic} ({named}) still runs, but no image arrives from it{anew}"
        # Imported here, because it is needed only when images are lost.
        from efftam_ros.ros.common.large_images import CAMERA_NODE, large_image_remedy

        if {info.node_name for info in offered} == {CAMERA_NODE}:
            return f"no image of {CAMERA_NODE} has arrived: its log shows whether it waits for its stream"
        anew = f" ({self._anew})" if self._made_anew else ""
        return (
            f"{self.topic} is published ({self._named(offered)}) and no image arrives{anew}: the camera sends"
            f" no images, or all are lost on the way; {large_image_remedy(is_reliable)}"
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
        named = ", ".join(images[:MAX_NAMED]) + (", ..." if len(images) > MAX_NAMED else "")
        return f"nothing publishes {self.topic}; images are published on {named}: remap image to one of them"

    def _is_camera(self, topic: str) -> bool:
        """Return whether another node publishes the topic. This node's own mask and overlay do not count."""
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
        for info in found[:MAX_NAMED]:
            name = "name not known yet" if info.node_name == UNKNOWN_NODE else shown(info.node_name)[1:-1]
            named.append(f"{name}: {'reliable' if _is_reliable(info) else 'best effort'}")
        return ", ".join(named) + (", ..." if len(found) > MAX_NAMED else "")

    def _choose_topic(self) -> str:
        named = self.base_topic + self._transport.suffix
        if self._given:
            return named
        # Some drivers publish compressed images on a topic without the suffix /compressed.
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
        """Return the reliability that the user requests: that of a QoS override parameter if there is one,
        else ``reliability``, the value of image_reliability."""
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
            self._on_image,
            QoSProfile(depth=self._transport.depth, reliability=reliability),
            event_callbacks=self._callbacks(topic),
            qos_overriding_options=QoSOverridingOptions([QoSPolicyKind.DEPTH, QoSPolicyKind.HISTORY]),
        )
        return made

    def _replace(self, topic: str, reliability: ReliabilityPolicy) -> None:
        old, self._current = self._current, self._subscribe(topic, reliability)
        self._node.destroy_subscription(old.handle)

    def _on_image(self, message: Any) -> None:
        self._arrived_s, self._patience_s, self._made_anew = time.monotonic(), DEAF_S, 0
        self._receive(message)


def _is_reliable(info: Any) -> bool:
    return bool(info.qos_profile.reliability == ReliabilityPolicy.RELIABLE)
