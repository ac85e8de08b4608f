"""Measures frame times of several contenders in alternating turns.

A GPU back end returns from a frame before its memory encoder has run, and the next frame waits for it. So
each turn runs several frames back to back. The first of them is not counted, because the GPU may still work
for the previous contender.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from benchmarks.contenders import Contender
from efftam_ros.tools.common.terminal import progress_bar
from efftam_workshop.bench.frames import WARM_UP, Frames, resident_mb

# Counted frames per turn. Turns are short, so that all contenders are measured in the same state of the
# machine.
TURN = 5


def measure_frames(
    contenders: Sequence[Contender], frames: Frames, count: int, *, quiet: bool = False
) -> None:
    """Warm up each contender, then measure ``count`` frames of each, in turns of `TURN` frames.

    The first contender of a turn rotates. All contenders receive the same frames. The results are added to
    the contenders.
    """
    with progress_bar((count + WARM_UP) * len(contenders), "compare", quiet=quiet) as bar:
        warm_up = list(itertools.islice(frames, WARM_UP))
        for contender in contenders:
            before_mb = resident_mb()
            for frame, prompt in warm_up:
                contender.step(frame, prompt)
                bar.update()
            contender.resident_mb += resident_mb() - before_mb
        lead_in = 1 if len(contenders) > 1 else 0
        for turn, done in enumerate(range(0, count, TURN)):
            taken = list(itertools.islice(frames, lead_in + min(TURN, count - done)))
            first = turn % len(contenders)
            for contender in (*contenders[first:], *contenders[:first]):
                for frame, prompt in taken[:lead_in]:
                    contender.step(frame, prompt)
                for frame, prompt in taken[lead_in:]:
                    start = time.perf_counter()
                    stages = contender.step(frame, prompt)
                    contender.add(time.perf_counter() - start, stages)
                    bar.update()
