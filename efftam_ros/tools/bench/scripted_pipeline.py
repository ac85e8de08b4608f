"""A pipeline that returns scripted candidates, for tests and benchmarks without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec, Prompt
from efftam_ros.runtime.frame_state import FrameState
from efftam_ros.runtime.image.encodings import check_image
from efftam_ros.runtime.image.masks import rectangle_mask

Script = Sequence[Candidates] | Callable[[int, View], Candidates]


@dataclass(frozen=True)
class Call:
    """One call of a pipeline: its name, the index of the frame it belonged to, and its arguments."""

    name: str
    frame: int
    arguments: tuple[Any, ...]


class ScriptedPipeline:
    """Implements `Pipeline`; frame i (counted by ``encode``, from 0) returns entry i of the script.

    Bad images, prompts and calls out of order raise the same errors as in the real pipelines; masks are the
    filled boxes of the candidates. ``calls`` lists every call.

    Args:
        script: A sequence of Candidates, or a function of (frame index, view).
        spec: Constants of the network.
        found: Results of `search`, a function of (index of the next frame, view); default: the script's.
    """

    is_asynchronous = False

    def __init__(
        self,
        script: Script,
        spec: PipelineSpec | None = None,
        found: Callable[[int, View], Candidates] | None = None,
    ) -> None:
        self._script, self._found = script, found
        self._frame = FrameState(spec or PipelineSpec(name="scripted", image_side=512))
        self._candidates: Candidates | None = None
        self._index = -1
        self.calls: list[Call] = []

    @property
    def spec(self) -> PipelineSpec:
        return self._frame.spec

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        return {}

    @property
    def frames(self) -> int:
        """Number of encoded images."""
        return self._index + 1

    def calls_of(self, name: str) -> list[Call]:
        """The calls of one method, oldest first."""
        return [call for call in self.calls if call.name == name]

    def encode(self, image: Image, view: View) -> None:
        self._frame.begin()
        check_image(image)
        self._index += 1
        self._record("encode", image, view)
        self._frame.encoded(image, view)

    def attend(self, plan: MemoryPlan) -> None:
        self._frame.require_image()
        self._frame.check_plan(plan)
        self._record("attend", plan)
        self._frame.attended()

    def decode(self, prompt: Prompt | None) -> Candidates:
        self._record("decode", prompt)
        encoded = self._frame.encode_prompt(prompt)
        if encoded is not None:
            self._frame.prompted(encoded)
        self._candidates = self._scripted(self._index, self._frame.view)
        return self._candidates

    def remember(self, choice: int, slot: int, present: bool) -> None:
        self._frame.require_image()
        self._frame.check_slot(slot)
        self._record("remember", choice, slot, present)

    def search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        self._frame.begin()
        self._frame.check_search(plan)
        check_image(image)
        self._record("search", image, tuple(views), plan)
        found = self._found or self._scripted
        return [found(self._index + 1, view) for view in views]

    def mask(self, choice: int) -> NDArray[np.uint8]:
        self._record("mask", choice)
        if self._candidates is None:
            raise RuntimeError("no candidates: decode comes before mask")
        return rectangle_mask(self._candidates.box(choice), *self._frame.image_size)

    def close(self) -> None:
        self._record("close")
        self._frame.is_closed = True

    def _scripted(self, index: int, view: View) -> Candidates:
        if callable(self._script):
            return self._script(index, view)
        if index < len(self._script):
            return self._script[index]
        raise RuntimeError(f"the script has {len(self._script)} frames; frame {index} was asked for")

    def _record(self, name: str, *arguments: Any) -> None:
        self.calls.append(Call(name, self._index, arguments))
