"""The PyTorch pipeline: the network as it is written, eager FP32 on the CPU; the baseline that others are
compared with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec, Prompt
from efftam_ros.model.boxes import boxes_and_areas
from efftam_ros.model.from_bundle import load_network
from efftam_ros.model.network import Network, NetworkSpec
from efftam_ros.runtime.bundle import RING_SLOTS, Bundle
from efftam_ros.runtime.masks import image_mask, make_candidates
from efftam_ros.runtime.preprocess import Preprocessor
from efftam_ros.runtime.prompting import CERTAIN, EncodedPrompt, encode_prompt, no_prompt
from efftam_ros.runtime.threads import default_threads

Preprocess = Callable[[Image, View], NDArray[np.float32]]


class TorchPipeline:
    """The `Pipeline` contract on a PyTorch network.

    ``preprocess`` turns an image and a view into network input float32 [1,3,S,S]; left out, it is a
    `Preprocessor` with the network's mean and standard deviation. ``threads``: CPU threads of the whole
    process' PyTorch, 0 for `default_threads`.
    """

    _view: View | None
    _encoded: dict[str, Tensor]
    _prompt: dict[str, Tensor]
    _encoded_prompt: EncodedPrompt | None

    def __init__(self, network: Network, preprocess: Preprocess | None = None, threads: int = 0) -> None:
        torch.set_num_threads(threads or default_threads())
        spec = network.spec
        self._network = network.eval()
        self._preprocess = preprocess or Preprocessor(spec.side, spec.image_mean, spec.image_std)
        self._spec = pipeline_spec(spec)
        self._stage_seconds: dict[str, float] = {}
        slots, tokens = self._spec.slots, spec.grid * spec.grid
        self._maps = torch.zeros(slots, tokens, spec.memory_channels, dtype=getattr(torch, spec.memory_dtype))
        self._pointers = torch.zeros(slots, spec.channels)
        self._no_prompt = no_prompt(spec.side)
        self._closed = False
        self._forget_frame()
        with torch.inference_mode():
            self._tracking = self._run_prompt_encoder(
                torch.zeros(1, spec.channels, spec.grid, spec.grid), self._no_prompt
            )

    @classmethod
    def from_bundle(cls, bundle: Bundle, threads: int = 0) -> TorchPipeline:
        """The pipeline of the network that a bundle was exported from."""
        return cls(load_network(bundle.folder), threads=threads)

    @property
    def spec(self) -> PipelineSpec:
        return self._spec

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        return self._stage_seconds

    @torch.inference_mode()
    def encode(self, image: Image, view: View) -> None:
        self._refuse_closed()
        self._forget_frame()
        with self._timed("preprocess"):
            pixels = torch.from_numpy(self._preprocess(image, view))
        with self._timed("image_encoder"):
            self._encoded = self._network.encode_image(pixels)
        self._view = view
        self._image_size = (image.width, image.height)

    @torch.inference_mode()
    def attend(self, plan: MemoryPlan) -> None:
        self._shown()
        self._encoded_prompt = None
        if not plan.slots:
            self._prompt = self._run_prompt_encoder(self._encoded["features"], self._no_prompt)
            return
        with self._timed("memory_attention"):
            conditioned = self._network.attend(
                self._encoded["features"],
                self._maps[list(plan.slots)].float(),
                torch.tensor(plan.rows),
                self._pointers[list(plan.pointer_slots)],
            )
        self._prompt = self._tracking | {"conditioned": conditioned}

    @torch.inference_mode()
    def decode(self, prompt: Prompt | None) -> Candidates:
        view = self._shown()
        if prompt is not None:
            encoded = encode_prompt(prompt, view, *self._image_size)
            self._prompt = self._run_prompt_encoder(self._encoded["features"], encoded)
            self._encoded_prompt = encoded
        elif not self._prompt or self._encoded_prompt is not None:
            raise RuntimeError("decode(None) without attend: a tracked frame is conditioned on memory first")
        with self._timed("mask_decoder"):
            decoded = self._network.decode(
                self._prompt["conditioned"], self._prompt["sparse"], self._prompt["dense"], self._encoded
            )
            rows = self._answer(decoded)
            boxes, areas = boxes_and_areas(self._logits)
        return make_candidates(
            view, boxes.numpy(), areas.numpy(), decoded["ious"][rows].numpy(), float(decoded["presence"])
        )

    @torch.inference_mode()
    def remember(self, choice: int, slot: int, present: bool) -> None:
        self._shown()
        prompted = self._encoded_prompt is not None
        with self._timed("memory_encoder"):
            memory, pointer = self._network.encode_memory(
                self._encoded["features"],
                self._logits[choice][None, None],
                torch.tensor([float(present)]),
                torch.tensor([float(prompted)]),
                self._candidate_pointers[choice][None],
                self._prompt.get("prompt_raster"),
            )
            self._maps[slot], self._pointers[slot] = memory[0], pointer[0]

    def mask(self, choice: int) -> NDArray[np.uint8]:
        return image_mask(self._logits[choice].numpy(), self._shown(), *self._image_size)

    def close(self) -> None:
        self._closed = True
        self._forget_frame()
        self._maps = self._pointers = torch.empty(0)

    def _answer(self, decoded: dict[str, Tensor]) -> slice:
        """Keep the logits and pointers that this frame offers; the rows of the decoder's answer they are."""
        prompt = self._encoded_prompt
        rows = slice(1, 4) if prompt is None or prompt.multimask else slice(0, 1)
        self._logits = decoded["masks"][0, rows]
        self._candidate_pointers = decoded["pointers"][rows]
        if prompt is not None and prompt.logits is not None:
            self._logits = torch.from_numpy(prompt.logits)[None]
            decoded["ious"] = torch.ones_like(decoded["ious"])
            decoded["presence"] = torch.full_like(decoded["presence"], CERTAIN)
        return rows

    def _run_prompt_encoder(self, features: Tensor, prompt: EncodedPrompt) -> dict[str, Tensor]:
        tensors = (torch.from_numpy(a) for a in (prompt.points, prompt.labels, prompt.mask, prompt.has_mask))
        with self._timed("prompt_encoder"):
            return self._network.encode_prompt(features, *tensors)

    def _shown(self) -> View:
        self._refuse_closed()
        if self._view is None:
            raise RuntimeError("no image: encode comes first in every frame")
        return self._view

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the pipeline is closed")

    def _forget_frame(self) -> None:
        self._stage_seconds = {}
        self._view = None
        self._image_size = (0, 0)
        self._encoded = {}
        self._prompt = {}
        self._encoded_prompt = None
        self._logits = self._candidate_pointers = torch.empty(0)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._stage_seconds[stage] = time.perf_counter() - start


def pipeline_spec(spec: NetworkSpec) -> PipelineSpec:
    """What the tracker must know of a network."""
    return PipelineSpec(
        name=spec.name,
        image_side=spec.side,
        temporal_rows=spec.temporal_rows,
        max_maps=spec.max_maps,
        max_pointers=spec.max_pointers,
        slots=RING_SLOTS,
        recent_maps=spec.recent_maps,
        default_view=spec.default_view,
        window_factor=spec.window_factor,
    )
