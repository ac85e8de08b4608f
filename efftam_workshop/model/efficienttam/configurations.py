"""The eight official EfficientTAM configurations (yformer/EfficientTAM, ``configs/efficienttam/*.yaml``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from efftam_workshop.model.common.network import NetworkSpec


class Pooling(Enum):
    """How the memory attention pools the keys of its cross-attention if it attends to at least two maps.

    POOLED_1 averages keys and values over 2x2 tokens and adds ln 4 to the logits of pooled keys. POOLED_2
    averages in the same way, and adds ln 4 to every channel of the pooled keys.
    """

    PLAIN = "plain"
    POOLED_1 = "pooled_1"
    POOLED_2 = "pooled_2"


@dataclass(frozen=True)
class Configuration:
    """One official network: input ``side`` (network px), ``width`` and ``heads`` of its ViT, ``pooling``.

    Of these values a checkpoint shows only the width. Side and pooling are known only from its name.
    """

    name: str
    side: int
    width: int
    heads: int
    pooling: Pooling = Pooling.PLAIN

    @property
    def spec(self) -> NetworkSpec:
        """The constants of the network that export and runtime need."""
        from efftam_workshop.model.common.network import NetworkSpec

        layout = "plain" if self.pooling is Pooling.PLAIN else "pooled"
        return NetworkSpec(name=self.name, family="efficienttam", side=self.side, key_layout=layout)


CONFIGURATIONS: dict[str, Configuration] = {
    configuration.name: configuration
    for configuration in (
        Configuration("efficienttam_ti", 1024, 192, 3),
        Configuration("efficienttam_ti_1", 1024, 192, 3, Pooling.POOLED_1),
        Configuration("efficienttam_ti_2", 1024, 192, 3, Pooling.POOLED_2),
        Configuration("efficienttam_ti_512x512", 512, 192, 3),
        Configuration("efficienttam_s", 1024, 384, 6),
        Configuration("efficienttam_s_1", 1024, 384, 6, Pooling.POOLED_1),
        Configuration("efficienttam_s_2", 1024, 384, 6, Pooling.POOLED_2),
        Configuration("efficienttam_s_512x512", 512, 384, 6),
    )
}
