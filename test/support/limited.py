"""Code in a process of its own that may not take more memory than it should."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIB = 2**20
# Printed by the code's process as its last line: the most memory it ever held, KiB.
# Not ru_maxrss, which a process takes over from the one that started it.
PEAK = "\nimport re as _r; print(_r.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"


def run_limited(code: str, *arguments: object, address_space: int) -> subprocess.CompletedProcess[str]:
    """Run Python code that imports this checkout, under a limit of its address space in bytes; what it prints
    last is the most memory it held, KiB."""
    return subprocess.run(
        [sys.executable, "-c", code + PEAK, *map(str, arguments)],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "test"), os.environ.get("PYTHONPATH", "")]),
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        },
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def peak_bytes(done: subprocess.CompletedProcess[str]) -> int:
    """The most memory that the code of `run_limited` held; fails when it did not end well."""
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1]) * 1024
