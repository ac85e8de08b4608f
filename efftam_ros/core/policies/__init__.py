"""The policies by name: which candidate is the target, what is remembered."""

from __future__ import annotations

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.policies.base import Policy
from efftam_ros.core.policies.default import DefaultPolicy
from efftam_ros.core.types import PipelineSpec


def make_policy(spec: PipelineSpec, config: TrackerConfig) -> Policy:
    """The policy that ``config.policy`` names."""
    if config.policy == "default":
        return DefaultPolicy(spec, config)
    # Imported only here: the reference policies are for comparisons.
    from efftam_ros.core.policies.reference import EfficientTamPolicy, SamuraiPolicy

    return SamuraiPolicy(spec, config) if config.policy == "samurai" else EfficientTamPolicy(spec, config)
