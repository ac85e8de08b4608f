"""Shares of the kinds of training clips: composites, footage and photographs."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from efftam_ros.core.errors import InputError


@dataclass(frozen=True)
class Mixture:
    """Shares of the kinds of clips, in any unit: only their ratios matter."""

    composite: float = 0.45
    footage: float = 0.32
    photograph: float = 0.23


def parse_mixture(text: str) -> Mixture:
    """Parse "composites,footage,photographs", three numbers. Raises InputError that names the text."""
    try:
        mixture = Mixture(*map(float, text.split(",", 2)))
        shares = astuple(mixture)
        if text.count(",") != 2 or not all(0 <= s < math.inf for s in shares) or not sum(shares):
            raise ValueError(text)
    except ValueError:
        raise InputError(
            f"mixture {text!r} can't be read; write the shares of composites, footage and photographs,"
            " 0 or more each and not all 0, as in 0.45,0.32,0.23"
        ) from None
    return mixture
