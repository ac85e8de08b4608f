"""The PyTorch pipeline: the network as it is written, on the CPU or on a GPU; the baseline that others are
compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from efftam_ros.baselines.device import torch_device
from efftam_ros.baselines.modes import Compiler, Ring, Tensors, open_modules
from efftam_ros.baselines.timing import stage_timer
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec, Prompt
from efftam_ros.model.common.boxes import boxes_and_areas
from efftam_ros.model.common.from_bundle import load_bundle_network
from efftam_ros.model.common.network import Network, NetworkSpec
from efftam_ros.runtime.bundle import RING_SLOTS, Bundle
from efftam_ros.runtime.image.masks import image_mask, make_candidates
from efftam_ros.runtime.image.preprocess import Preprocessor
from efftam_ros.runtime.image.prompts import CERTAIN, EncodedPrompt, encode_prompt, no_prompt
from efftam_ros.runtime.threads import default_threads

Preprocess = Callable[[Image, View], NDArray[np.float32]]


class TorchPipeline:
    """The `Pipeline` contract on a PyTorch network.

    ``device``: cpu, cuda or cuda:N; the network is moved there. ``mode``: one of `torch_modes.MODES`, fp32
    (eager, without TF32), bf16 (autocast) or compiled (bfloat16, whole modules by torch.compile's
    ``compiler``). ``preprocess`` turns an image and a view into network input float32 [1,3,S,S]; left out, it
    is a `Preprocessor` with the network's mean and standard deviation. ``threads``: CPU threads of the whole
    process' PyTorch, 0 for `default_threads`.

    A frame sends the preprocessed image to the device once and waits once, in `decode`, for some 100 bytes.
    On CUDA `stage_seconds` are those of the device, known after `decode`; the memory encoder's are those of
    the frame before (see `torch_timing.EventTimer`). Raises BackendError when the device or the
    compiler can't be used.
    """

    _view: View | None
    _encoded: Tensors
    _prompt: Tensors
    _encoded_prompt: EncodedPrompt | None

    def __init__(
        self,
        network: Network,
        preprocess: Preprocess | None = None,
        threads: int = 0,
        device: str = "cpu",
        mode: str = "fp32",
        compiler: Compiler = "inductor",
    ) -> None:
        torch.set_num_threads(threads or default_threads())
        spec = network.spec
        opened = torch_device(device)
        self._modules = open_modules(network, opened, mode, compiler)
        self._preprocess = preprocess or Preprocessor(spec.side, spec.image_mean, spec.image_std)
        self._spec = pipeline_spec(spec)
        self._timer = stage_timer(opened)
        self._ring: Ring | None = Ring(spec, self._spec.slots, opened)
        self._no_prompt = no_prompt(spec.side)
        self._closed = False
        self._forget_frame()
        with torch.inference_mode():
            self._tracking = self._run_prompt_encoder(
                torch.zeros(1, spec.channels, spec.grid, spec.grid, device=opened), self._no_prompt
            )

    @classmethod
    def from_bundle(
        cls, bundle: Bundle, threads: int = 0, device: str = "cpu", mode: str = "fp32"
    ) -> TorchPipeline:
        """The pipeline of the network that a bundle was exported from."""
        torch_device(device)  # before the weights are read
        return cls(load_bundle_network(bundle.folder), threads=threads, device=device, mode=mode)

    @property
    def spec(self) -> PipelineSpec:
        return self._spec

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        return self._timer.seconds

    @torch.inference_mode()
    def encode(self, image: Image, view: View) -> None:
        self._refuse_closed()
        self._forget_frame()
        self._modules.start_frame()
        with self._timer.stage("preprocess", on_host=True):
            pixels = self._modules.upload(torch.from_numpy(self._preprocess(image, view)))
        with self._timer.stage("image_encoder"):
            self._encoded = self._modules.encode_image(pixels)
        self._view = view
        self._image_size = (image.width, image.height)

    @torch.inference_mode()
    def attend(self, plan: MemoryPlan) -> None:
        self._shown()
        self._encoded_prompt = None
        if not plan.slots:
            self._prompt = self._run_prompt_encoder(self._encoded["features"], self._no_prompt)
            self._attended = False
            return
        with self._timer.stage("memory_attention"):
            conditioned = self._modules.attend(self._encoded["features"], self._memory(), plan)
        self._prompt = self._tracking | {"conditioned": conditioned}
        self._attended = True

    @torch.inference_mode()
    def decode(self, prompt: Prompt | None) -> Candidates:
        view = self._shown()
        if prompt is not None:
            encoded = encode_prompt(prompt, view, *self._image_size)
            self._prompt = self._run_prompt_encoder(self._encoded["features"], encoded)
            self._encoded_prompt = encoded
            self._attended = False
        elif not self._prompt or self._encoded_prompt is not None:
            raise RuntimeError("decode(None) without attend: a tracked frame is conditioned on memory first")
        with self._timer.stage("mask_decoder"):
            decoded = self._modules.decode(self._prompt, self._encoded, tracked=self._attended)
            answer = self._answer(decoded)
        numbers = answer.cpu().numpy()
        self._timer.waited()
        rows = numbers[:-1].reshape(-1, 6)
        return make_candidates(view, rows[:, :4], rows[:, 4], rows[:, 5], float(numbers[-1]))

    @torch.inference_mode()
    def remember(self, choice: int, slot: int, present: bool) -> None:
        self._shown()
        ring = self._memory()
        ring.check(slot)
        prompted = self._encoded_prompt is not None
        with self._timer.stage("memory_encoder"):
            map_, pointer = self._modules.encode_memory(
                self._encoded["features"],
                self._logits[choice],
                self._modules.upload(torch.tensor([float(present), float(prompted)])),
                self._candidate_pointers[choice],
                self._prompt.get("prompt_raster"),
            )
            ring.store(slot, map_, pointer)

    def mask(self, choice: int) -> NDArray[np.uint8]:
        return image_mask(self._logits[choice].cpu().numpy(), self._shown(), *self._image_size)

    def close(self) -> None:
        self._closed = True
        self._forget_frame()
        self._ring = None

    def _answer(self, decoded: Tensors) -> Tensor:
        """Keep the logits and pointers that this frame offers; all numbers that the host needs in one tensor:
        six per candidate (box, area, IoU), then presence."""
        prompt = self._encoded_prompt
        rows = slice(1, 4) if prompt is None or prompt.multimask else slice(0, 1)
        self._logits = decoded["masks"][0, rows]
        self._candidate_pointers = decoded["pointers"][rows]
        boxes, areas, ious = (decoded[name][rows] for name in ("boxes", "areas", "ious"))
        presence = decoded["presence"]
        if prompt is not None and prompt.logits is not None:
            self._logits = self._modules.upload(torch.from_numpy(prompt.logits))[None]
            boxes, areas = boxes_and_areas(self._logits)
            ious, presence = torch.ones_like(ious), torch.full_like(presence, CERTAIN)
        return torch.cat([torch.cat([boxes, areas[:, None], ious[:, None]], dim=1).flatten(), presence])

    def _run_prompt_encoder(self, features: Tensor, prompt: EncodedPrompt) -> Tensors:
        with self._timer.stage("prompt_encoder"):
            return self._modules.encode_prompt(features, prompt)

    def _memory(self) -> Ring:
        self._refuse_closed()
        assert self._ring is not None
        return self._ring

    def _shown(self) -> View:
        self._refuse_closed()
        if self._view is None:
            raise RuntimeError("no image: encode comes first in every frame")
        return self._view

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the pipeline is closed")

    def _forget_frame(self) -> None:
        self._timer.start_frame()
        self._view = None
        self._image_size = (0, 0)
        self._encoded = {}
        self._prompt = {}
        self._encoded_prompt = None
        self._attended = False
        self._logits = self._candidate_pointers = torch.empty(0)


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
