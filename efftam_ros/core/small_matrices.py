"""Products and solutions of small matrices, in numpy's own loops.

Not by BLAS: OpenBLAS maps a workspace at its first product, and where no memory is left it tries for ever,
holding the interpreter's lock. Its results also differ from one kind of processor to the next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def product(*factors: Array) -> Array:
    """The product of matrices [n, m] from left to right; the last may be a vector [m]."""
    result = factors[0]
    for factor in factors[1:]:
        result = np.einsum("ij,jk->ik" if factor.ndim == 2 else "ij,j->i", result, factor)
    return result


def solve(matrix: Array, right: Array) -> Array:
    """``x`` of ``matrix x = right``; matrix [n, n], right [n] or [n, m].

    Gaussian elimination with row pivots. Raises ValueError when the matrix is singular or not finite.
    """
    n = len(matrix)
    # Python's own numbers: for these sizes five times as fast as numpy's operations on rows.
    rows = np.column_stack([matrix, right]).tolist()
    for i in range(n):
        pivot = max(range(i, n), key=lambda j: abs(rows[j][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        head = rows[i][i]
        if not abs(head) > 0.0:
            raise ValueError(f"the matrix is singular or not finite: {matrix.tolist()}")
        row = rows[i] = [value / head for value in rows[i]]
        for j in range(n):
            if j != i:
                factor = rows[j][i]
                rows[j] = [value - factor * own for value, own in zip(rows[j], row, strict=True)]
    return np.array(rows)[:, n:].reshape(right.shape)
