"""Devices and execution modes of a network in PyTorch: FP32, bfloat16 autocast, compiled."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from efftam_ros.core.errors import BackendError
from efftam_ros.core.types import MemoryPlan
from efftam_ros.runtime.preprocess import EncodedPrompt, no_prompt
from efftam_workshop.agreement.compare import UNUSED_KEY
from efftam_workshop.model.common.layers import boxes_and_areas
from efftam_workshop.model.common.network import Network, NetworkSpec

MODES = ("fp32", "bf16", "compiled")

_RECORDING_RUNS = 3
"""Number of runs after which a compiled module is replayed: compiling, recording of a CUDA graph, replay."""

Tensors = dict[str, Tensor]
Compiler = str | Callable[..., Any]
"""Type of torch.compile's argument ``backend``."""


class Ring:
    """Memory maps and pointers on the device, one of each per slot. The last slot is always empty.

    ``maps``: [slots+1,N,M] in the network's memory dtype. ``pointers``: float32 [slots+1,C].
    """

    def __init__(self, spec: NetworkSpec, slots: int, device: torch.device) -> None:
        self.slots = slots
        tokens, dtype = spec.grid * spec.grid, getattr(torch, spec.memory_dtype)
        self.maps = torch.zeros(slots + 1, tokens, spec.memory_channels, dtype=dtype, device=device)
        self.pointers = torch.zeros(slots + 1, spec.channels, device=device)

    def store(self, slot: int, map_: Tensor, pointer: Tensor) -> None:
        """Write a map [N,M] and a pointer [C] into a slot. Raises IndexError for a slot outside the ring."""
        self.check(slot)
        self.maps[slot], self.pointers[slot] = map_, pointer

    def check(self, *slots: int) -> None:
        """Raise IndexError for a slot outside the ring: on a GPU no process recovers from such an access."""
        for slot in slots:
            if not 0 <= slot < self.slots:
                raise IndexError(f"slot {slot} is not in the ring of {self.slots}")


class Modules:
    """Runs the modules of a network on a device, eagerly, in FP32 or under bfloat16 autocast.

    Prompts are always encoded in FP32, because bfloat16 is too coarse for their coordinates. All tensors are
    on the device. Masks, IoUs, presence, boxes, areas and pointers are returned as float32.
    """

    def __init__(self, network: Network, device: torch.device, *, bfloat16: bool) -> None:
        self.network = network.eval().to(device)
        self.device = device
        self._bfloat16 = bfloat16

    def start_frame(self) -> None:
        """Prepare for a new frame. Must be called before the frame's first module."""

    def upload(self, values: Tensor) -> Tensor:
        """Copy a CPU tensor to the device, asynchronously from pinned memory."""
        if self.device.type == "cpu":
            return values
        # The pinned block may be freed here: its allocator does not reuse it before the copy is finished.
        return values.pin_memory().to(self.device, non_blocking=True)

    def encode_image(self, pixels: Tensor) -> Tensors:
        """Return the features, by name, of an image [1,3,S,S]."""
        with self.precision():
            return self.network.encode_image(pixels)

    def encode_prompt(self, features: Tensor, prompt: EncodedPrompt) -> Tensors:
        """Encode a prompt.

        Returns ``conditioned``, ``sparse``, ``dense`` and, if the network has it, ``prompt_raster``.
        """
        arrays = (prompt.points, prompt.labels, prompt.mask, prompt.has_mask)
        tensors = [self.upload(torch.from_numpy(array)) for array in arrays]
        return self.network.encode_prompt(features.float(), *tensors)

    def attend(self, features: Tensor, ring: Ring, plan: MemoryPlan) -> Tensor:
        """Return the features, conditioned on the plan's maps (at least one) and pointers in the ring."""
        ring.check(*plan.slots, *plan.pointer_slots)
        maps = len(plan.slots)
        indices = self.upload(torch.tensor([*plan.slots, *plan.rows, *plan.pointer_slots]))
        slots, rows, pointer_slots = indices[:maps], indices[maps : 2 * maps], indices[2 * maps :]
        with self.precision():
            return self.network.attend(features, ring.maps[slots].float(), rows, ring.pointers[pointer_slots])

    def decode(self, prompt: Tensors, features: Tensors, *, tracked: bool) -> Tensors:
        """Decode the candidates. Returns the network's outputs, and ``boxes`` [4,4] and ``areas`` [4].

        ``prompt``: tensors "conditioned", "sparse" and "dense". ``tracked``: this frame was conditioned by
        `attend`. Boxes and areas are in px and px² of the network's input.
        """
        with self.precision():
            return _decode(self.network, prompt, features)

    def encode_memory(
        self, features: Tensor, logits: Tensor, flags: Tensor, pointer: Tensor, prompt_raster: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the map [N,M] and the pointer [C] to store for a candidate.

        ``logits`` [4G,4G] and ``pointer`` [C]: those of the candidate. ``flags``: float32 [2], whether the
        target is present and whether the mask is made binary, each 0 or 1.
        """
        with self.precision():
            return _encode_memory(self.network, features, logits, flags, pointer, prompt_raster)

    def precision(self) -> torch.autocast:
        """Return the autocast context in which the modules run."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._bfloat16)


class CompiledModules(Modules):
    """Runs modules that torch.compile has compiled as whole graphs, on CUDA autotuned and as CUDA graphs.

    All modules of a tracked frame are compiled for fixed shapes. Memory therefore has the fixed form, with
    one map per temporal row and a bias that masks unused keys. Prompted frames are decoded eagerly. Layers
    that autocast would cast have bfloat16 weights. Results are cloned, because the next replay of a graph
    overwrites its outputs.

    The constructor compiles, which takes minutes on CUDA. It raises BackendError if that fails.
    """

    def __init__(self, network: Network, device: torch.device, compiler: Compiler = "inductor") -> None:
        from torch._dynamo.exc import TorchDynamoException  # imported here because the import takes seconds

        super().__init__(network, device, bfloat16=True)
        if compiler == "inductor" and device.type == "cuda" and importlib.util.find_spec("triton") is None:
            raise BackendError(
                "torch.compile needs the Python module triton, which is not installed",
                "pip install triton or choose the back end torch-cuda-bf16",
            )
        bf16 = with_bfloat16_weights(self.network)
        autotuned = compiler == "inductor" and device.type == "cuda"

        def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
            whole = torch.compile(
                function,
                fullgraph=True,
                dynamic=False,
                backend=compiler,
                mode="max-autotune" if autotuned else None,
            )
            return lambda *tensors: _cloned(whole(*tensors))

        self._encode_image = compiled(lambda pixels: bf16.encode_image(pixels))
        self._attend = compiled(lambda *memory: _attend_fixed(bf16, *memory))
        self._decode = compiled(lambda prompt, features: _decode(bf16, prompt, features))
        self._encode_memory = compiled(lambda *inputs: _encode_memory(bf16, *inputs))
        self._spec = network.spec
        try:
            self._compile()
        except TorchDynamoException as error:
            lines = " ".join(str(error).strip().splitlines()[:2])
            raise BackendError(
                f"torch.compile can't compile {network.spec.name}: {lines}",
                "choose the back end torch-cuda-bf16",
            ) from error

    def start_frame(self) -> None:
        torch.compiler.cudagraph_mark_step_begin()

    def encode_image(self, pixels: Tensor) -> Tensors:
        with self.precision():
            features: Tensors = self._encode_image(pixels)
        return features

    def attend(self, features: Tensor, ring: Ring, plan: MemoryPlan) -> Tensor:
        """Return what `Modules.attend` returns, computed with memory in the fixed form.

        Raises ValueError for a plan that does not fit this form: two maps in one row, too many pointers, or,
        in a network with pooled keys, a single map in a row other than the last.
        """
        ring.check(*plan.slots, *plan.pointer_slots)
        layout = self.upload(torch.tensor(fixed_layout(self._spec, plan, empty=ring.slots)))
        maps_layout, pointers_layout = layout[: self._spec.temporal_rows], layout[self._spec.temporal_rows :]
        maps, pointers = ring.maps[maps_layout], ring.pointers[pointers_layout]
        with self.precision():
            conditioned: Tensor = self._attend(
                features, maps, pointers, maps_layout < ring.slots, pointers_layout < ring.slots
            )
        return conditioned

    def decode(self, prompt: Tensors, features: Tensors, *, tracked: bool) -> Tensors:
        if not tracked:
            return super().decode(prompt, features, tracked=tracked)
        with self.precision():
            decoded: Tensors = self._decode(prompt, features)
        return decoded

    def encode_memory(
        self, features: Tensor, logits: Tensor, flags: Tensor, pointer: Tensor, prompt_raster: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        with self.precision():
            map_, stored = self._encode_memory(features, logits, flags, pointer, prompt_raster)
        return map_, stored

    def precision(self) -> torch.autocast:
        # Without the cache: cached casts of weights would lie in memory that belongs to a CUDA graph.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    @torch.inference_mode()
    def _compile(self) -> None:
        """Run every compiled module on a black image and an empty memory, until it is replayed."""
        spec = self._spec
        ring = Ring(spec, 1, self.device)
        plan = MemoryPlan(slots=(0,), rows=(spec.temporal_rows - 1,), pointer_slots=(0,))
        pixels = torch.zeros(1, 3, spec.side, spec.side)
        for _ in range(_RECORDING_RUNS):
            self.start_frame()
            features = self.encode_image(self.upload(pixels))
            prompt = self.encode_prompt(features["features"], no_prompt(spec.side))
            prompt["conditioned"] = self.attend(features["features"], ring, plan)
            decoded = self.decode(prompt, features, tracked=True)
            flags = self.upload(torch.zeros(2))
            candidate = decoded["masks"][0, 1], flags, decoded["pointers"][1]
            self.encode_memory(features["features"], *candidate, prompt.get("prompt_raster"))


def open_modules(
    network: Network, device: torch.device, mode: str, compiler: Compiler = "inductor"
) -> Modules:
    """Open a network's modules on a device in one of `MODES`.

    Raises ValueError for an unknown mode, and BackendError if the network does not fit into the device's
    memory or can't be compiled.
    """
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; choose one of {', '.join(MODES)}")
    try:
        if mode == "compiled":
            return CompiledModules(network, device, compiler)
        return Modules(network, device, bfloat16=mode == "bf16")
    except torch.OutOfMemoryError as error:
        raise BackendError(
            f"{network.spec.name} does not fit into the free memory of {device}",
            "end other programs on the GPU or choose a smaller network",
        ) from error


def with_bfloat16_weights(network: Network) -> Network:
    """Return a copy whose linear and convolutional layers have bfloat16 weights, for use under autocast."""
    converted = copy.deepcopy(network)
    for module in converted.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            module.to(torch.bfloat16)
    return converted


def fixed_layout(spec: NetworkSpec, plan: MemoryPlan, empty: int) -> list[int]:
    """Return the ring slot of each temporal row, followed by the slots of ``max_pointers`` pointers.

    Unused entries have the slot ``empty``. Raises ValueError for a plan that does not fit the fixed form.
    """
    alone_elsewhere = len(plan.rows) == 1 and plan.rows[0] != spec.temporal_rows - 1
    if len(set(plan.rows)) < len(plan.rows) or (spec.key_layout == "pooled" and alone_elsewhere):
        raise ValueError(f"{plan} does not fit the fixed form of memory; use mode fp32 or bf16")
    maps = [empty] * spec.temporal_rows
    for slot, row in zip(plan.slots, plan.rows, strict=True):
        maps[row] = slot
    unused = spec.max_pointers - len(plan.pointer_slots)
    if unused < 0:
        raise ValueError(f"{plan} has more than {spec.max_pointers} pointers; use mode fp32 or bf16")
    return [*maps, *plan.pointer_slots, *[empty] * unused]


def key_bias(spec: NetworkSpec, used_maps: Tensor, used_pointers: Tensor) -> Tensor:
    """Return the key bias (docs/bundle.md), float32 [1,1,1,K].

    ``used_maps`` bool [R], ``used_pointers`` bool [P]: which temporal rows and pointers are used. The result
    is on their device.
    """
    tokens = spec.grid * spec.grid
    pointers = used_pointers.repeat_interleave(spec.pointer_tokens)
    if spec.key_layout == "plain":
        used = torch.cat([used_maps.repeat_interleave(tokens), pointers])
    else:
        several = used_maps.sum() > 1
        pooled = (used_maps & several).repeat_interleave(tokens // 4)
        used = torch.cat([(~several).expand(tokens), pooled, pointers])
    return torch.where(used, 0.0, UNUSED_KEY).reshape(1, 1, 1, -1)


def _attend_fixed(
    network: Network,
    features: Tensor,
    maps: Tensor,
    pointers: Tensor,
    used_maps: Tensor,
    used_pointers: Tensor,
) -> Tensor:
    rows = torch.arange(maps.shape[0], device=maps.device)
    bias = key_bias(network.spec, used_maps, used_pointers)
    return network.attend(features, maps.float(), rows, pointers, bias)


def _decode(network: Network, prompt: Tensors, features: Tensors) -> Tensors:
    decoded = network.decode(prompt["conditioned"], prompt["sparse"], prompt["dense"], features)
    decoded = {name: tensor.float() for name, tensor in decoded.items()}
    decoded["boxes"], decoded["areas"] = boxes_and_areas(decoded["masks"][0])
    return decoded


def _encode_memory(
    network: Network,
    features: Tensor,
    logits: Tensor,
    flags: Tensor,
    pointer: Tensor,
    prompt_raster: Tensor | None,
) -> tuple[Tensor, Tensor]:
    present, binarize = flags[:1], flags[1:]
    map_, stored = network.encode_memory(
        features, logits[None, None], present, binarize, pointer[None], prompt_raster
    )
    return map_[0], stored[0]


def _cloned(result: Any) -> Any:
    """Return a clone of a tensor, or of a dict or tuple of tensors."""
    if isinstance(result, dict):
        return {name: _cloned(value) for name, value in result.items()}
    if isinstance(result, tuple):
        return tuple(_cloned(value) for value in result)
    return result.clone()


def torch_device(name: str) -> torch.device:
    """Open the device ``name``, such as "cpu", "cuda" or "cuda:1".

    On CUDA this disables TF32 and enables cuDNN's benchmark mode, both for the whole process. Raises
    ValueError for another kind of device, and BackendError if PyTorch can't use the device.
    """
    device = torch.device(name)
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ValueError(f"device is {name!r}; give cpu, cuda or cuda:N")
    try:
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(device)
        torch.ones(1, device=device).add_(1)
        torch.cuda.synchronize(device)
    except (AssertionError, RuntimeError) as error:  # PyTorch lacks CUDA, or can't use the driver or GPU
        cause = str(error).strip().splitlines()[0].partition(". ")[0].rstrip(".")
        raise BackendError(
            f"PyTorch {torch.__version__} can't use {name}: {cause}",
            "install a build of PyTorch for this GPU and its driver (https://pytorch.org/get-started), or"
            " choose the back end torch",
        ) from error
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return device
