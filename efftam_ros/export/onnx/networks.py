"""Builds a network by the name of its configuration, with fresh weights or those of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from efftam_ros.core.errors import InputError
from efftam_ros.model.common.network import Network
from efftam_ros.model.compact.network import COMPACT_CONFIGS, CompactTAM
from efftam_ros.model.efficienttam.checkpoint import load_checkpoint, read_state_dict
from efftam_ros.model.efficienttam.configurations import CONFIGURATIONS, configuration
from efftam_ros.model.efficienttam.network import EfficientTAM

NAMES = (*CONFIGURATIONS, *COMPACT_CONFIGS)
_COMPACT_PARAMETER = "prompt_encoder.label_embedding"
_OFFICIAL_PARAMETER = "sam_mask_decoder.mask_tokens.weight"


def build_network(name: str) -> Network:
    """The network of this configuration with fresh weights. Raises InputError listing the names when
    unknown."""
    if name in COMPACT_CONFIGS:
        return CompactTAM(COMPACT_CONFIGS[name]).eval()
    if name in CONFIGURATIONS:
        return EfficientTAM(configuration(name)).eval()
    raise InputError(f"there is no configuration {name!r}; choose one of {', '.join(NAMES)}")


def load_checkpoint_network(checkpoint: Path, name: str) -> Network:
    """The network of this configuration with the weights of a checkpoint ``{"model": state_dict}``.

    Raises InputError when the configuration is unknown, or the file is not a checkpoint of this network.
    """
    network = build_network(name)
    state = read_state_dict(checkpoint)
    if name in CONFIGURATIONS:
        if _COMPACT_PARAMETER in state:
            raise _wrong_family(checkpoint, "a compact network", name, ", ".join(COMPACT_CONFIGS))
        return load_checkpoint(checkpoint, name)
    if _OFFICIAL_PARAMETER in state:
        raise _wrong_family(checkpoint, "an EfficientTAM", name, ", ".join(CONFIGURATIONS))
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        faults = "; ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise InputError(f"{checkpoint} does not fit {name}: {faults[:300]}") from None
    return network


def _wrong_family(checkpoint: Path, found: str, name: str, fitting: str) -> InputError:
    return InputError(f"{checkpoint} is of {found}, {name} is not; name one of {fitting}")
