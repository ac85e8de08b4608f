"""A pipeline that returns scripted candidates, for tests and benchmarks without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec, Prompt
from efftam_ros.runtime.image.encodings import check_image
from efftam_ros.runtime.image.masks import rectangle_mask
from efftam_ros.runtime.image.prompts import encode_prompt

Script = Sequence[Candidates] | Callable[[int, View], Candidates]


@dataclass(frozen=True)
class Call:
    """One call of a pipeline: its name, the index of the frame it belonged to, and its arguments."""

    name: str
    frame: int
    arguments: tuple[Any, ...]


class ScriptedPipeline:
    """Implements `Pipeline`; frame i (counted by ``encode``, from 0) returns entry i of the script.

    ``script`` is a sequence of Candidates, or a function of (frame index, view). ``calls`` lists every call.
    Bad images and prompts raise the same errors as in the real pipelines; masks are the filled boxes of the
    candidates.
    """

    def __init__(self, script: Script, spec: PipelineSpec | None = None) -> None:
        self._script = script
        self._spec = spec or PipelineSpec(name="scripted", image_side=512)
        self._image_size = (0, 0)
        self._view: View | None = None
        self._candidates: Candidates | None = None
        self._frame = -1
        self.calls: list[Call] = []

    @property
    def spec(self) -> PipelineSpec:
        return self._spec

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        return {}

    @property
    def frames(self) -> int:
        """How many images were encoded."""
        return self._frame + 1

    def calls_of(self, name: str) -> list[Call]:
        """The calls of one method, oldest first."""
        return [call for call in self.calls if call.name == name]

    def encode(self, image: Image, view: View) -> None:
        check_image(image)
        self._frame += 1
        self._record("encode", image, view)
        self._image_size = (image.width, image.height)
        self._view = view

    def attend(self, plan: MemoryPlan) -> None:
        self._record("attend", plan)

    def decode(self, prompt: Prompt | None) -> Candidates:
        self._record("decode", prompt)
        if self._view is None:
            raise RuntimeError("no image: encode comes first in every frame, and nothing comes after close")
        if prompt is not None:
            encode_prompt(prompt, self._view, *self._image_size)
        if callable(self._script):
            self._candidates = self._script(self._frame, self._view)
        elif self._frame < len(self._script):
            self._candidates = self._script[self._frame]
        else:
            raise RuntimeError(
                f"the script has {len(self._script)} frames; frame {self._frame} does not exist"
            )
        return self._candidates

    def remember(self, choice: int, slot: int, present: bool) -> None:
        self._record("remember", choice, slot, present)

    def mask(self, choice: int) -> NDArray[np.uint8]:
        self._record("mask", choice)
        if self._candidates is None:
            raise RuntimeError("no candidates: decode comes before mask")
        return rectangle_mask(self._candidates.box(choice), *self._image_size)

    def close(self) -> None:
        self._record("close")
        self._view = None

    def _record(self, name: str, *arguments: Any) -> None:
        self.calls.append(Call(name, self._frame, arguments))
