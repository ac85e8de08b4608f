"""Products and solutions as numpy's own, also where no memory is left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.limited import MIB, run_limited

from efftam_ros.core.small_matrices import product, solve


def matrix(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 8), st.integers(1, 8))
def test_products_are_those_of_numpy(seed: int, n: int, m: int, k: int):
    a, b, c, v = matrix(seed, n, m), matrix(seed + 1, m, k), matrix(seed + 2, k, n), matrix(seed + 3, n)
    assert product(a, b) == pytest.approx(a @ b, abs=1e-12)
    assert product(a, b, c) == pytest.approx(a @ b @ c, abs=1e-11)
    assert product(a, b, c, v) == pytest.approx(a @ b @ c @ v, abs=1e-10)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 6))
def test_solutions_solve(seed: int, n: int, m: int):
    a, b = matrix(seed, n, n), matrix(seed + 1, n, m)
    scale = 1e-9 * np.linalg.cond(a)
    assert a @ solve(a, b) == pytest.approx(b, abs=scale)
    assert a @ solve(a, b[:, 0]) == pytest.approx(b[:, 0], abs=scale)


def test_a_zero_on_the_diagonal_is_no_obstacle():
    assert solve(np.array([[0.0, 2.0], [4.0, 0.0]]), np.array([2.0, 4.0])).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("bad", [[[1.0, 2.0], [2.0, 4.0]], [[np.nan, 0.0], [0.0, np.nan]], [[0.0]]])
def test_singular_matrices_are_refused(bad: list[list[float]]):
    with pytest.raises(ValueError, match="singular"):
        solve(np.array(bad), np.ones(len(bad)))


def test_the_motion_filter_works_where_no_memory_is_left_for_blas():
    """OpenBLAS would try for ever to map its workspace."""
    code = f"""
import resource
import numpy as np
from efftam_ros.core.bearing import Intrinsics
from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import MotionFilter
from efftam_ros.core.policies.samurai_filter import ReferenceFilter
motion = MotionFilter(0, Box(100, 100, 40, 30))
reference = ReferenceFilter(np.array([120.0, 115.0, 1.3, 30.0]))
camera = Intrinsics.from_camera_info([500.0, 0, 320, 0, 500, 240, 0, 0, 1], [0.1, 0, 0, 0, 0], "plumb_bob")
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + {MIB}, taken + {MIB}))
for i in range(1, 5):
    motion.predict(i * 10**8)
    motion.mahalanobis(Box(100 + 4 * i, 100, 40, 30))
    motion.update(Box(100 + 4 * i, 100, 40, 30))
    reference.predict()
    reference.update(np.array([120.0 + 4 * i, 115.0, 1.3, 30.0]))
belief = motion.motion
camera.bearing((belief.box.cx, belief.box.cy), belief.velocity, belief.covariance)
print(belief.velocity[0])
"""
    done = run_limited(code, address_space=4096 * MIB)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) == pytest.approx(40.0, rel=0.3)
