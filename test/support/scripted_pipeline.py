"""A pipeline that returns scripted candidates, for tests and benchmarks without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec, Prompt
from simulation.null_pipeline import NullPipeline

Script = Sequence[Candidates] | Callable[[int, View], Candidates]


@dataclass(frozen=True)
class Call:
    """One call of a pipeline: its name, the index of the frame it belonged to, and its arguments."""

    name: str
    frame: int
    arguments: tuple[Any, ...]


@dataclass
class _Play:
    """What all lanes play: ``index`` of the newest frame, ``lane`` of the newest call."""

    script: Script
    found: Callable[[int, View], Candidates] | None
    index: int = -1
    lane: int = 0
    calls: list[Call] = field(default_factory=list)


class ScriptedPipeline(NullPipeline):
    """Implements `Pipeline`; frame i (counted by ``encode``, from 0) returns entry i of the script.

    Bad images, prompts and calls out of order raise the same errors as in the real pipelines; masks are the
    filled boxes of the candidates. ``calls`` lists every call.

    Args:
        script: A sequence of Candidates, or a function of (frame index, view).
        spec: Constants of the network.
        found: Results of `search`, a function of (index of the next frame, view); default: the script's.
        lanes: See `Pipeline.lane`; a script of several asks `in_lane` which one it plays for.
    """

    def __init__(
        self,
        script: Script,
        spec: PipelineSpec | None = None,
        found: Callable[[int, View], Candidates] | None = None,
        lanes: int = 1,
    ) -> None:
        self._play = _Play(script, found)
        super().__init__(spec or PipelineSpec(name="scripted", image_side=512), lanes)

    @property
    def calls(self) -> list[Call]:
        """Every call, of all lanes."""
        return self._play.calls

    @property
    def in_lane(self) -> int:
        """The lane that plays."""
        return self._play.lane

    @property
    def frames(self) -> int:
        """Number of encoded images."""
        return self._play.index + 1

    def calls_of(self, name: str) -> list[Call]:
        """The calls of one method, oldest first."""
        return [call for call in self.calls if call.name == name]

    def encode(self, image: Image, view: View) -> None:
        super().encode(image, view)
        self._play.index += 1
        self._record("encode", image, view)

    def attend(self, plan: MemoryPlan) -> None:
        super().attend(plan)
        self._record("attend", plan)

    def decode(self, prompt: Prompt | None) -> Candidates:
        self._record("decode", prompt)
        return super().decode(prompt)

    def _decoded(self, view: View, prompt: Prompt | None) -> Candidates:
        self._shown = self._scripted(self._play.index, view)
        self._frame.rows = range(len(self._shown))
        return self._shown

    def remember(self, choice: int, slot: int, present: bool) -> None:
        super().remember(choice, slot, present)
        self._record("remember", choice, slot, present)

    def search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        super().search(image, views, plan)
        self._record("search", image, tuple(views), plan)
        found = self._play.found or self._scripted
        return [found(self._play.index + 1, view) for view in views]

    def mask(self, choice: int) -> NDArray[np.uint8]:
        self._record("mask", choice)
        if not self.calls_of("decode"):
            raise RuntimeError("no candidates: decode comes before mask")
        return super().mask(choice)

    def close(self) -> None:
        super().close()
        self._record("close")

    def _scripted(self, index: int, view: View) -> Candidates:
        self._play.lane, script = self._lane, self._play.script
        if callable(script):
            return script(index, view)
        if index < len(script):
            return script[index]
        raise RuntimeError(f"the script has {len(script)} frames; frame {index} was asked for")

    def _record(self, name: str, *arguments: Any) -> None:
        self._play.lane = self._lane
        self.calls.append(Call(name, self._play.index, arguments))
