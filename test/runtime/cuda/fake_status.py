"""What the parts of the fake GPU share: its statuses, its devices, the real names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from runtime.cuda.fake_streams import Job

_reason = "the fake GPU takes its names from cuda-bindings: pip install efftam_ros[cuda]"
real_driver = pytest.importorskip("cuda.bindings.driver", reason=_reason)

Status = real_driver.CUresult


@dataclass(frozen=True)
class FakeDevice:
    """What the driver says of a GPU. ``total_bytes``: 0 for as much as the `FakeGpu` has."""

    name: str = "Fake GPU"
    compute_capability: tuple[int, int] = (8, 7)
    integrated: bool = False
    multiprocessors: int = 16
    total_bytes: int = 0


ORIN_AGX = FakeDevice("Orin", (8, 7), True, 16, 64_300_000_000)
ORIN_NX = FakeDevice("Orin", (8, 7), True, 8, 16_400_000_000)
ORIN_NANO = FakeDevice("Orin", (8, 7), True, 4, 4_010_000_000)
"""Boards that share a name and a compute capability."""


class RefusedError(Exception):
    """Ends a call with a status other than success."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Capture:
    """What a stream keeps instead of running it."""

    thread: int
    jobs: list[Job]
    invalid: bool = False


def known(there: Mapping[int, Any], handle: Any) -> Any:
    if int(handle) not in there:
        raise RefusedError(Status.CUDA_ERROR_INVALID_HANDLE)
    return there[int(handle)]


def enumeration(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}: older cuda-bindings refuse numbers")
    return value
