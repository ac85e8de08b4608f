"""Progress on stderr, shown on terminals only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tqdm import tqdm


def progress_bar(total: int | None, text: str, *, unit: str = "frame", quiet: bool = False) -> tqdm:
    """A tqdm bar on stderr, disabled by ``quiet`` or if stderr is not a terminal. ``total`` may be None."""
    from tqdm import tqdm

    return tqdm(
        total=total,
        desc=text,
        unit=unit,
        file=sys.stderr,
        disable=quiet or not sys.stderr.isatty(),
        dynamic_ncols=True,
        leave=False,
    )


class BuildProgress:
    """Progress of an engine build on stderr: lines of text, and a bar for each phase of TensorRT's builder.

    Close it when the build ends. Prints nothing when ``quiet``.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: tqdm | None = None
        self._phase = ""

    def say(self, line: str) -> None:
        if not self._quiet:
            self.close()
            print(line, file=sys.stderr)

    def step(self, phase: str, step: int, steps: int) -> bool:
        """Called by the builder; always returns True, which lets the build continue."""
        if self._quiet:
            return True
        if phase != self._phase or self._bar is None:
            from tqdm import tqdm

            self.close()
            self._phase = phase
            self._bar = tqdm(total=steps, desc=phase[:40], unit="step", leave=False, dynamic_ncols=True)
        self._bar.update(step - self._bar.n)
        return True

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar, self._phase = None, ""
