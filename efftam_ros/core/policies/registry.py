"""The policies by name."""

from __future__ import annotations

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.policies.base import Policy
from efftam_ros.core.policies.default import DefaultPolicy
from efftam_ros.core.reference_policies import EfficientTamPolicy, SamuraiPolicy
from efftam_ros.core.types import PipelineSpec


def make_policy(spec: PipelineSpec, config: TrackerConfig) -> Policy:
    """The policy that ``config.policy`` names."""
    classes = {"default": DefaultPolicy, "samurai": SamuraiPolicy, "efficienttam": EfficientTamPolicy}
    return classes[config.policy](spec, config)
