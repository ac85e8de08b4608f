"""What graphs gave, under the fakes: for inputs that were there before nothing is computed again.

Back ends warm up on the same zeros whenever they open, and many tests show the same image. A graph's results
depend on nothing but its inputs, so whatever byte of them is wrong is computed with.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

MAX_BYTES = 256 << 20
"""The results used last are kept, of all graphs together."""

Key = tuple[onnxruntime.InferenceSession, bytes]
_kept: OrderedDict[Key, list[NDArray[Any]]] = OrderedDict()
_lock = threading.Lock()


def results_of(
    session: onnxruntime.InferenceSession,
    feeds: Mapping[str, NDArray[Any]],
    compute: Callable[[], Sequence[NDArray[Any]]],
) -> list[NDArray[Any]]:
    """What ``compute`` returns, which runs this session on these inputs; read-only copies."""
    digest = hashlib.sha256()
    for name, values in sorted(feeds.items()):
        digest.update(f"{name} {values.dtype} {values.shape};".encode())
        digest.update(np.ascontiguousarray(values))
    key = session, digest.digest()
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    results = [np.array(values) for values in compute()]
    for values in results:
        values.setflags(write=False)
    with _lock:
        _kept[key] = results
        while sum(values.nbytes for kept in _kept.values() for values in kept) > MAX_BYTES:
            _kept.popitem(last=False)
    return results
