"""QoS profiles shared by both ends of a topic."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy


def reliable(depth: int = 10) -> QoSProfile:
    """Reliable delivery of the newest ``depth`` messages."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)


def sampled(depth: int = 10) -> QoSProfile:
    """Best effort, for subscribers to a stream whose publisher may be reliable or not."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)


def latched() -> QoSProfile:
    """Reliable and transient local: the newest message also reaches late subscribers."""
    return QoSProfile(
        depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
    )
