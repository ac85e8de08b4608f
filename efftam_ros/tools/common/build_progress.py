"""What a build of engines shows while it works: lines of what happens, and TensorRT's own progress."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm import tqdm


class BuildProgress:
    """Shows nothing when ``quiet``."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: tqdm[None] | None = None
        self._phase = ""

    def __enter__(self) -> BuildProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def say(self, line: str) -> None:
        if not self._quiet:
            self._close()
            print(line, file=sys.stderr)

    def step(self, phase: str, step: int, steps: int) -> bool:
        """TensorRT's progress; the answer lets it go on."""
        if self._quiet:
            return True
        if phase != self._phase or self._bar is None:
            self._close()
            self._phase = phase
            self._bar = tqdm(total=steps, desc=phase[:40], unit="step", leave=False, dynamic_ncols=True)
        self._bar.update(step - self._bar.n)
        return True

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar, self._phase = None, ""
