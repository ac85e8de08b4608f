"""A pipeline that runs the network in PyTorch, on the CPU or a GPU: the baseline for comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.pytorch.modes import Compiler, Ring, Tensors, open_modules, torch_device
from benchmarks.pytorch.timing import stage_timer
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image, MemoryPlan, PipelineSpec
from efftam_ros.runtime.bundle import RING_SLOTS, Bundle
from efftam_ros.runtime.frame_state import Chosen, Decoded, FrameState, TargetFrame
from efftam_ros.runtime.onnxruntime.cpu import default_threads
from efftam_ros.runtime.preprocess import EncodedPrompt, Preprocessor, image_mask, no_prompt
from efftam_workshop.model.common.network import Network, NetworkSpec
from efftam_workshop.model.loading import load_bundle_network

Preprocess = Callable[[Image, View], NDArray[np.float32]]


class TorchPipeline(FrameState):
    """A `Pipeline` that runs a PyTorch network.

    In each frame the preprocessed image is copied to the device once, and the host synchronises once, when it
    reads the candidates (some 100 bytes). On CUDA `stage_seconds` are measured on the device; the time of the
    memory encoder is that of the previous frame (see `timing.EventTimer`).

    Args:
        network: The network; it is moved to the device.
        preprocess: Converts an image and a view to network input float32 [1,3,S,S]; None: a `Preprocessor`
            with the network's mean and standard deviation.
        threads: CPU threads of PyTorch in the whole process, 0 for `default_threads`.
        device: cpu, cuda or cuda:N.
        mode: One of `modes.MODES`: fp32 (eager, without TF32), bf16 (autocast) or compiled (bfloat16, whole
            modules by torch.compile).
        compiler: Argument ``backend`` of torch.compile, for mode compiled.

    Raises:
        BackendError: The device or the compiler can't be used.
    """

    def __init__(
        self,
        network: Network,
        preprocess: Preprocess | None = None,
        threads: int = 0,
        device: str = "cpu",
        mode: str = "fp32",
        compiler: Compiler = "inductor",
    ) -> None:
        spec = network.spec
        super().__init__(pipeline_spec(spec))
        torch.set_num_threads(threads or default_threads())
        opened = torch_device(device)
        self._modules = open_modules(network, opened, mode, compiler)
        self._preprocess = preprocess or Preprocessor(spec.side, spec.image_mean, spec.image_std)
        self._timer = stage_timer(opened)
        self.is_on_gpu = opened.type == "cuda"
        self._ring = Ring(spec, self.spec.slots, opened)
        self._no_prompt = no_prompt(spec.side)
        self._features_of_view: Tensors = {}
        self._prompt: Tensors = {}
        self._answer: Tensor | None = None  # result of `_run_decoder` that was not read yet
        self._forget_frame()
        with torch.inference_mode():
            self._tracking = self._run_prompt_encoder(
                torch.zeros(1, spec.channels, spec.grid, spec.grid, device=opened), self._no_prompt
            )

    @classmethod
    def from_bundle(
        cls, bundle: Bundle, threads: int = 0, device: str = "cpu", mode: str = "fp32"
    ) -> TorchPipeline:
        """Create a pipeline with the network from which a bundle was exported.

        Raises BackendError if the device can't be used.
        """
        torch_device(device)  # raises an error before the weights are read, which takes long
        return cls(load_bundle_network(bundle.folder), threads=threads, device=device, mode=mode)

    def _start(self, image: Image, frames: Sequence[TargetFrame]) -> None:
        self._answer = None
        for frame in frames:
            if frame.look.is_search:
                super()._start(image, [frame])
                continue
            self._make_features(image, frame, frame.view)
            if frame.prompt is None and frame.look.plan.slots:
                self._attend(frame, frame.look.plan)
            else:
                self._condition(frame)
            self._answer = self._run_decoder(frame)

    def _wait(self, frame: TargetFrame) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            frame.found.append(frame.read(frame.view, self._read(frame, answer)))

    @torch.inference_mode()
    def _encode(self, frame: TargetFrame, image: Image, view: View) -> None:
        self._forget_frame()
        self._modules.start_frame()
        with self._timer.stage("preprocess", on_host=True):
            pixels = self._modules.upload(torch.from_numpy(self._preprocess(image, view)))
        with self._timer.stage("image_encoder"):
            self._features_of_view = self._modules.encode_image(pixels)

    @torch.inference_mode()
    def _condition(self, frame: TargetFrame) -> None:
        features = self._features_of_view["features"]
        self._prompt = self._run_prompt_encoder(features, frame.prompt or self._no_prompt)
        self._has_memory = False

    @torch.inference_mode()
    def _attend(self, frame: TargetFrame, plan: MemoryPlan) -> None:
        with self._timer.stage("memory_attention"):
            conditioned = self._modules.attend(self._features_of_view["features"], self._ring, plan)
        self._prompt = self._tracking | {"conditioned": conditioned}
        self._has_memory = True

    def _decode(self, frame: TargetFrame) -> Decoded:
        return self._read(frame, self._run_decoder(frame))

    @torch.inference_mode()
    def _run_decoder(self, frame: TargetFrame) -> Tensor:
        """Decode the candidates. Returns all numbers that the host needs in one tensor, for a single copy."""
        with self._timer.stage("mask_decoder"):
            decoded = self._modules.decode(self._prompt, self._features_of_view, tracked=self._has_memory)
            self._logits, self._candidate_pointers = decoded["masks"][0], decoded["pointers"]
            if frame.prompt is not None and frame.prompt.logits is not None:
                self._logits = self._modules.upload(torch.from_numpy(frame.prompt.logits))[None]
            per_row = torch.cat(
                [decoded["boxes"], decoded["areas"][:, None], decoded["ious"][:, None]], dim=1
            )
            return torch.cat([per_row.flatten(), decoded["presence"]])

    def _read(self, frame: TargetFrame, answer: Tensor) -> Decoded:
        """Copy the result of `_run_decoder` to the host, which waits for the device."""
        numbers = answer.cpu().numpy()
        self._timer.waited()
        frame.seconds |= self._timer.seconds
        rows = numbers[:-1].reshape(-1, 6)
        return Decoded(rows[:, :4], rows[:, 4], rows[:, 5], float(numbers[-1]))

    @torch.inference_mode()
    def _remember(self, chosen: Chosen) -> None:
        frame, row, slot, present = chosen
        with self._timer.stage("memory_encoder"):
            map_, pointer = self._modules.encode_memory(
                self._features_of_view["features"],
                self._logits[row],
                self._modules.upload(torch.tensor([float(present), float(frame.prompt is not None)])),
                self._candidate_pointers[row],
                self._prompt.get("prompt_raster"),
            )
            self._ring.store(slot, map_, pointer)
        if not self.is_on_gpu:
            self._memory_seconds[frame.target] = self._timer.seconds["memory_encoder"]

    def _mask(self, frame: TargetFrame, row: int) -> NDArray[np.uint8]:
        return image_mask(self._logits[row].cpu().numpy(), frame.view, *frame.size)

    def _close(self) -> None:
        self._forget_frame()
        del self._ring

    def _run_prompt_encoder(self, features: Tensor, prompt: EncodedPrompt) -> Tensors:
        with self._timer.stage("prompt_encoder"):
            return self._modules.encode_prompt(features, prompt)

    def _forget_frame(self) -> None:
        self._timer.start_frame()
        self._features_of_view = {}
        self._prompt = {}
        self._has_memory = False
        self._logits = self._candidate_pointers = torch.empty(0)


def pipeline_spec(spec: NetworkSpec) -> PipelineSpec:
    """Return the constants of a network that the tracker needs."""
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
