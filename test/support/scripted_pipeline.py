"""A pipeline that returns scripted candidates, for tests and benchmarks without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.contract import Remembered
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, PipelineSpec
from efftam_ros.runtime.frame_state import Chosen, TargetFrame
from simulation.null_pipeline import NullPipeline

Script = Sequence[Candidates] | Callable[[int, View], Candidates]


@dataclass(frozen=True)
class Call:
    """One call of a pipeline: its name, the index of the frame it belonged to, and its arguments."""

    name: str
    frame: int
    arguments: tuple[Any, ...]


class ScriptedPipeline(NullPipeline):
    """Implements `Pipeline`; image i (counted by looks that are no search, a selection's two as one, from 0)
    returns entry i of the script.

    Bad images, prompts and calls out of order raise the same errors as in the real pipelines; masks are the
    filled boxes of the candidates. ``calls`` lists what a network would do, in order: "encode" (image, view),
    "attend" (plan), "decode" (prompt), "search" (image, views, plan), "remember" (choice, slot, present),
    "mask" (choice), "close".

    Args:
        script: A sequence of Candidates, or a function of (image index, view).
        spec: Constants of the network.
        found: Results of a search, a function of (index of the next image, view); default: the script's.
        max_targets: Memories; a script of several asks `in_target` which one it plays for.
    """

    def __init__(
        self,
        script: Script,
        spec: PipelineSpec | None = None,
        found: Callable[[int, View], Candidates] | None = None,
        max_targets: int = 1,
    ) -> None:
        self._script, self._found = script, found
        self._index = -1
        self.calls: list[Call] = []
        self.in_target = 0
        """Number of the target that the newest call was for."""
        super().__init__(spec or PipelineSpec(name="scripted", image_side=512), max_targets)

    @property
    def frames(self) -> int:
        """Number of encoded images."""
        return self._index + 1

    def calls_of(self, name: str) -> list[Call]:
        """The calls of one method, oldest first."""
        return [call for call in self.calls if call.name == name]

    def _compute(self, image: Image, frame: TargetFrame) -> None:
        self.in_target, look = frame.target, frame.look
        if frame.look.is_search:
            found = self._found or self._scripted
            frame.found = [found(self._index + 1, view) for view in look.views]
            self._record("search", frame.target, image, look.views, look.plan)
            self._features.pop(frame.target, None)
            return
        self._make_features(image, frame, frame.view)
        if look.prompt is None:
            self._record("attend", frame.target, look.plan)
        self._record("decode", frame.target, look.prompt)
        frame.found = [self._scripted(self._index, frame.view)]
        frame.rows = range(len(frame.found[0]))

    def _encode(self, frame: TargetFrame, image: Image, view: View) -> None:
        self._index += 1
        self._record("encode", frame.target, image, view)

    def remember(self, choices: Sequence[Remembered]) -> None:
        super().remember(choices)
        self._features.clear()  # the same image object may come again

    def _remember(self, chosen: Chosen) -> None:
        self._record("remember", chosen.frame.target, chosen.row, chosen.slot, chosen.present)

    def _mask(self, frame: TargetFrame, row: int) -> NDArray[np.uint8]:
        self._record("mask", frame.target, row)
        return super()._mask(frame, row)

    def _close(self) -> None:
        self._record("close", 0)

    def _scripted(self, index: int, view: View) -> Candidates:
        if callable(self._script):
            return self._script(index, view)
        if index < len(self._script):
            return self._script[index]
        raise RuntimeError(f"the script has {len(self._script)} frames; frame {index} was asked for")

    def _record(self, name: str, target: int, *arguments: Any) -> None:
        self.in_target = target
        self.calls.append(Call(name, self._index, arguments))
