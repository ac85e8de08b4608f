"""`efftam build` and `efftam verify` where they can't run: one line with the reason and the remedy."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tools_helpers import assert_refused

from efftam_ros.runtime.backends import GPU_BACKENDS

no_tensorrt = pytest.mark.skipif(
    any(spec and spec.origin for spec in map(importlib.util.find_spec, ("tensorrt", "tensorrt_bindings"))),
    reason="TensorRT is installed",
)
no_driver = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is an NVIDIA driver")


@no_tensorrt
def test_build_without_tensorrt_names_what_to_install(efftam):
    assert_refused(efftam("build"), "TensorRT is not installed", "pip install")


@no_driver
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_verify_without_a_driver_names_the_driver(efftam_here, backend):
    refused = efftam_here("verify", "--backend", backend)
    assert_refused(refused, f"back end {backend} can't run", "NVIDIA driver")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("build --precision int4", ("'int4'", "fp32")),
        ("build --precision tf32", ("'tf32'", "'auto', 'fp16', 'fp32', 'int8'")),
        ("build --sequences .", ("--sequences", "INT8", "fp16")),
        ("build --precision int8 --calibration ./none", ("none",)),
        ("build /nowhere", ("bundle /nowhere does not exist",)),
        ("verify /nowhere", ("bundle /nowhere does not exist",)),
        ("verify --backend torch", ("'torch'", "tensorrt")),
        ("verify --backend onnxruntime-cpu", ("is not one of onnxruntime-cuda",)),
        ("verify --precision fp8", ("'fp8'", "'auto', 'fp32', 'fp16', 'int8'")),
    ],
)
def test_bad_requests_are_one_line(efftam_here, words, said):
    assert_refused(efftam_here(*words.split()), *said)
