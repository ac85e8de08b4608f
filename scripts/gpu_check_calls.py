"""Runs a benchmark (`gpu_check_calls.py OUT.json compare ...`), counts its CUDA calls through CUPTI."""

from __future__ import annotations

import ctypes
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INSTALL = "pip install nvidia-cuda-cupti (CUDA 12: nvidia-cuda-cupti-cu12)"
TOOLKITS = "/usr/local"
DRIVER_API = 1  # of CUpti_CallbackDomain; calls of the CUDA runtime reach the driver and count there
# CUpti_CallbackData: the call site (0: the call begins), then the function's name.
SITE_OFFSET, NAME_OFFSET, BEGINS = 0, 8, 0
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)


def find_cupti() -> Path | None:
    """The newest libcupti of the Python packages, else of a CUDA toolkit; None without one."""
    found = [path for folder in _folders() for path in folder.glob("**/libcupti.so.*") if path.is_file()]
    return max(found, key=lambda path: path.name, default=None)


def _folders() -> Iterator[Path]:
    yield from (Path(entry) / "nvidia" for entry in sys.path if (Path(entry) / "nvidia").is_dir())
    yield from Path(TOOLKITS).glob("cuda*/extras/CUPTI/lib64")


class CallCounter:
    """Counts the calls of the CUDA driver that this process makes, directly or through the CUDA runtime."""

    def __init__(self, library: Path) -> None:
        """Raises RuntimeError when CUPTI refuses, as it does while another profiler is active."""
        self._cupti: Any = ctypes.CDLL(str(library))
        self._names: dict[int, str] = {}
        self._counts: Counter[int] = Counter()
        self._callback = CALLBACK(self._count)  # CUPTI keeps the address only
        subscriber = ctypes.c_void_p()
        self._check("cuptiSubscribe", ctypes.byref(subscriber), self._callback, None)
        self._check("cuptiEnableDomain", 1, subscriber, DRIVER_API)

    @property
    def counts(self) -> dict[str, int]:
        """Name of the function to number of calls."""
        return {self._names[function]: count for function, count in self._counts.items()}

    def _check(self, function: str, *arguments: Any) -> None:
        status = getattr(self._cupti, function)(*arguments)
        if status:
            raise RuntimeError(f"{function} of {self._cupti._name} failed with status {status}")

    def _count(self, _: Any, domain: int, function: int, data: int) -> None:
        if ctypes.c_int.from_address(data + SITE_OFFSET).value != BEGINS:
            return
        if function not in self._names:
            name = ctypes.c_char_p.from_address(data + NAME_OFFSET).value or b"unknown"
            self._names[function] = name.decode()
        self._counts[function] += 1


def main(arguments: list[str]) -> int:
    out, *command = arguments
    library = find_cupti()
    if library is None:
        print(f"gpu_check_calls: libcupti is not installed; {INSTALL}", file=sys.stderr)
        return 2
    counter = CallCounter(library)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks.__main__ import main as benchmark

    code = benchmark(command)
    Path(out).write_text(json.dumps(counter.counts, indent=1) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
