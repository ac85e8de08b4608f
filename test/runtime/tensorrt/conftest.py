"""A fake TensorRT of each generation beside a fake GPU, and the shipped bundle's graphs."""

from __future__ import annotations

from typing import Any

import pytest
from runtime.cuda.fake_cuda import FakeDevice, FakeGpu
from runtime.tensorrt.fake_tensorrt import make_fake

from efftam_ros.runtime.cuda.api import Cuda, DeviceFacts, open_device
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.tensorrt.library import Library

GENERATIONS = ("10.3.0", "10.16.1.11", "11.4.0.106")
"""JetPack 6, JetPack 7, the newest."""


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu(device=FakeDevice(compute_capability=(8, 6)))


@pytest.fixture
def cuda(gpu: FakeGpu) -> Cuda:
    return Cuda(gpu.driver)


@pytest.fixture
def facts(cuda: Cuda) -> DeviceFacts:
    return open_device(cuda)


@pytest.fixture
def stream(cuda: Cuda, facts: DeviceFacts) -> Stream:
    return Stream(cuda)


@pytest.fixture(params=GENERATIONS)
def trt(request: pytest.FixtureRequest, gpu: FakeGpu) -> Any:
    return make_fake(request.param, gpu)


@pytest.fixture
def library(trt: Any) -> Library:
    return Library.of(trt)
