"""Qualities of service that both ends of a topic have to agree on."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy


def reliable(depth: int = 10) -> QoSProfile:
    """Every message arrives, the newest ``depth`` of them."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)


def sampled(depth: int = 10) -> QoSProfile:
    """For streams in which the next message makes up for a lost one; subscribers get it from publishers of
    either kind."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)


def latched() -> QoSProfile:
    """The newest message also reaches those who subscribe later."""
    return QoSProfile(
        depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
    )
