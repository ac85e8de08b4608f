"""Waiting until the publishers of a topic know this node's subscriptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rcl_interfaces.srv import GetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from efftam_ros.core.errors import InputError

UNKNOWN = "_UNKNOWN_"  # in the names of a node whose endpoints were discovered before the node itself
# How long a lost call is waited for before it is made again, s.
CALL_PATIENCE_S = 2.0


def wait_until_heard(
    node: Node,
    executor: SingleThreadedExecutor,
    topics: Iterable[str],
    patience_s: float,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until whoever publishes ``topics`` sends to the subscriptions that ``node`` has made so far.

    A publisher sends only to the subscriptions it has discovered, and does not tell which those are: a
    subscription may see the publisher long before the publisher sees it. Discovery keeps the order in which
    endpoints were made, so a node that answers a call through a client made now knows every earlier
    subscription. Every ROS 2 node answers `get_parameters`.

    Raises InputError when a topic has no publisher, or its node no answer, within ``patience_s``.
    """
    end = time.monotonic() + patience_s
    publishers: set[str] = set()
    for topic in topics:
        resolved = node.resolve_topic_name(topic)
        while not stop():
            found = [
                f"{info.node_namespace.rstrip('/')}/{info.node_name}"
                for info in node.get_publishers_info_by_topic(resolved)
            ]
            if found and not any(UNKNOWN in name for name in found):
                publishers.update(found)
                break
            if time.monotonic() > end:
                raise InputError(
                    f"nobody published {resolved} in {patience_s:g} s; is the tracker active, and in this"
                    " namespace?"
                )
            executor.spin_once(timeout_sec=0.05)
    for name in sorted(publishers):
        _call(node, executor, name, end, stop)


def _call(
    node: Node, executor: SingleThreadedExecutor, name: str, end: float, stop: Callable[[], bool]
) -> None:
    client = node.create_client(GetParameters, f"{name}/get_parameters")
    try:
        while not stop():
            answer = client.call_async(GetParameters.Request())
            retry = time.monotonic() + CALL_PATIENCE_S
            while not (answer.done() or stop()) and time.monotonic() < retry:
                executor.spin_once(timeout_sec=0.05)
            if answer.done():
                return
            if time.monotonic() > end:
                raise InputError(f"the node {name} answers no calls; is it hanging? start it again")
    finally:
        node.destroy_client(client)
