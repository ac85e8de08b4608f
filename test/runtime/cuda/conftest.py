"""A fake GPU in each version of cuda-bindings, and the checked wrapper over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # imported late: without cuda-bindings the tests that need them are skipped, not the others
    from runtime.cuda.fake_cuda import FakeGpu

    from efftam_ros.runtime.cuda.api import Cuda


@pytest.fixture(params=["12.9", "13"])
def fake(request: pytest.FixtureRequest) -> FakeGpu:
    from runtime.cuda.fake_cuda import FakeGpu

    return FakeGpu(request.param)


@pytest.fixture
def cuda(fake: FakeGpu) -> Cuda:
    """Opened on GPU 0, with the kernel of samples.py."""
    from runtime.cuda.samples import opened

    return opened(fake)
