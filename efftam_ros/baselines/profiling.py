"""Records the operators that PyTorch runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch.profiler import profile, supported_activities


@contextmanager
def operators_recorded(trace: Path) -> Iterator[None]:
    """Write what runs inside ``with`` as a Chrome trace."""
    # The profiler prints on stderr when it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(activities=supported_activities()) as profiler:
        yield
    profiler.export_chrome_trace(str(trace))
