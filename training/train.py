"""The training loop: clips, unrolling, AdamW, running average, validation, checkpoints."""

from __future__ import annotations

import copy
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from efftam_ros.core.errors import InputError
from efftam_workshop.model.compact.network import CompactTAM
from training import checkpoints
from training.clips import Clip, ClipDataset, ClipSource
from training.hardness import HARD, Hardness
from training.journal import Journal
from training.material import load_material, require_archive
from training.mixture import Mixture
from training.schedule import Stage, learning_rate, stage_at
from training.unroll import unroll
from training.validation import validate, validation_clips

REPORT_S, CHECKPOINT_S = 20.0, 180.0
MAX_STEPS = 10**9  # number of steps for which clips are drawn if time limits the run
AVERAGE = 0.998


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a run; they are written to recipe.json in its folder."""

    material: Path
    out: Path
    steps: int = 20000
    hours: float | None = None  # length of the run, used instead of ``steps``
    stages: tuple[Stage, ...] = ()
    rate: float = 6e-4
    trunk_rate: float = 1.5e-4
    seed: int = 0
    open_data_only: bool = False
    mixture: Mixture = field(default_factory=Mixture)
    hardness: Hardness = HARD
    memory_faults: float = 0.0  # share of clips that store wrong masks in memory for a few frames
    validate_every: int = 500
    validation_clips: int = 64
    workers: int = 1
    threads: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Check the options. Raises InputError that names an invalid one."""
        least = {
            "steps": 1,
            "validate_every": 1,
            "validation_clips": 1,
            "seed": 0,
            "workers": 0,
            "threads": 0,
        }
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InputError(f"{name} is {getattr(self, name)}; give {bound} or more")
        for name in ("rate", "trunk_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; give a number above 0")
        if not 0 <= self.memory_faults <= 1:
            raise InputError(f"memory_faults is {self.memory_faults}; give a share from 0 to 1")
        if self.hours is not None and not 0 < self.hours < math.inf:
            raise InputError(f"hours is {self.hours}; give a number above 0")
        require_archive(self.material)
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError):
            raise InputError(
                f"device is {self.device!r}, which PyTorch does not find here; give cpu or cuda"
            ) from None


def train(
    options: TrainingOptions, network: CompactTAM, resume: bool, progress: Callable[[int, str], None]
) -> None:
    """Train ``network`` in place; write checkpoints, log and plot to ``options.out``.

    ``progress`` is called with the number of finished steps and the latest scores. ``resume`` continues from
    the checkpoint in ``options.out`` and its position in the order of clips. ``steps`` or ``hours`` may then
    differ from before. In a run limited by time, the seconds of earlier sessions count too.
    """
    cv2.setNumThreads(0)  # before workers are forked: OpenCV's threads do not survive a fork
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    if _is_cuda(options.device):
        # TF32: ten bits of mantissa suffice for training, and tensor cores are several times faster with
        # them.
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True  # TF32 for convolutions
    options.out.mkdir(parents=True, exist_ok=True)
    _write_recipe(options)
    spec = network.spec
    source = ClipSource(
        load_material(options.material, "train", options.open_data_only),
        options.mixture,
        spec.side,
        options.hardness,
    )
    trainer = Trainer(options, network.to(options.device), Journal(options.out))
    held_out = ClipSource(
        load_material(options.material, "validation", options.open_data_only), Mixture(), spec.side
    )
    validation = [_moved(b, options.device) for b in validation_clips(held_out, options.validation_clips)]
    if resume:
        trainer.restore(checkpoints.load(options.out / checkpoints.RESUME))
    trainer.run(source, validation, progress)


class Trainer:
    """Runs the training and keeps its state: network, running average, optimiser, steps and clips."""

    def __init__(self, options: TrainingOptions, network: CompactTAM, journal: Journal) -> None:
        self._options, self._network, self._journal = options, network, journal
        self._average = copy.deepcopy(network).requires_grad_(False)
        self._optimizer = optimizer_for(network)
        self._step = self._clips = 0
        self._seconds = 0.0

    def restore(self, content: dict[str, Any]) -> None:
        """Set the state to that of a checkpoint, as `checkpoints.load` returns it."""
        self._network.load_state_dict(content["model"])
        self._average.load_state_dict(content["average"])
        self._optimizer.load_state_dict(content["optimizer"])
        self._step, self._clips, self._seconds = content["step"], content["clips"], content["seconds"]

    def save(self) -> None:
        content = {
            "model": self._network.state_dict(),
            "average": self._average.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self._step,
            "clips": self._clips,
            "seconds": self._seconds,
        }
        checkpoints.save(self._options.out / checkpoints.RESUME, content)
        checkpoints.save_weights(self._options.out / checkpoints.WEIGHTS, self._average)

    def run(self, source: ClipSource, validation: list[Clip], progress: Callable[[int, str], None]) -> None:
        options = self._options
        began, before = time.monotonic(), self._seconds
        reported = saved = began
        current = -1
        clips: Iterator[Clip] = iter(())
        recent: list[dict[str, float]] = []
        summary = ""
        while self._progress() < 1:
            stage = stage_at(options.stages, self._progress())
            if stage != current:
                current = stage
                clips = self._clips_of(source, options.stages[stage])
            recent.append(self._take(next(clips), options.stages[stage]))
            now = time.monotonic()
            self._seconds = before + now - began
            if now - reported > REPORT_S:
                means = {name: float(np.mean([r[name] for r in recent])) for name in recent[0]}
                self._journal.write(
                    "train", step=self._step, clips=self._clips, seconds=round(self._seconds), **means
                )
                summary = f"loss {means['loss']:.3f} overlap {means['overlap']:.3f}"
                recent, reported = [], now
            if self._step % options.validate_every == 0 or self._progress() >= 1:
                self._validate(validation)
            if now - saved > CHECKPOINT_S:
                self.save()
                saved = now
            progress(self._step, summary)
        self.save()

    def _progress(self) -> float:
        """Return the finished share of the run's time or steps; 1 or more at its end."""
        if self._options.hours is not None:
            return self._seconds / (3600 * self._options.hours)
        return self._step / self._options.steps

    def _take(self, batch: Clip, stage: Stage) -> dict[str, float]:
        """Train one step on one batch; return its losses and its mean overlap by name."""
        options = self._options
        batch = _moved(batch, options.device)
        self._network.train()
        encoder = self._network.image_encoder
        for index, part in enumerate(encoder.stages):
            part.requires_grad_(index >= stage.first_learning)
        encoder.stem.requires_grad_(stage.first_learning == 0)
        for group, rate in zip(self._optimizer.param_groups, self._rates(), strict=True):
            group["lr"] = rate
        rng = np.random.default_rng([options.seed, 1, self._step])
        out = unroll(self._network, batch, rng, options.memory_faults)
        self._optimizer.zero_grad(set_to_none=True)
        out.total.backward()
        nn.utils.clip_grad_norm_(self._network.parameters(), 1.0, foreach=True)
        self._optimizer.step()
        self._step += 1
        self._clips += len(batch.present)
        self._follow()
        tracked = [
            (o * p).sum() / p.sum().clamp(min=1) for o, p in zip(out.overlap, out.present, strict=True)
        ][1:]
        return {
            "loss": out.total.item(),
            **{
                name: float(np.mean([getattr(frame, name).item() for frame in out.losses]))
                for name in ("mask", "iou", "presence")
            },
            "likeness": float(torch.stack(out.likeness).mean().item()) if out.likeness else 0.0,
            "overlap": float(torch.stack(tracked).mean()) if tracked else 0.0,
        }

    def _rates(self) -> list[float]:
        """Return the learning rates of the optimiser's four groups, in the order of `optimizer_for`."""
        options = self._options
        heads, trunk = (
            learning_rate(highest, self._step, self._progress())
            for highest in (options.rate, options.trunk_rate)
        )
        return [heads, heads, trunk, trunk]

    def _follow(self) -> None:
        """Update the running average of the weights; early steps change it more."""
        keep = min(AVERAGE, (1 + self._step) / (20 + self._step))
        with torch.no_grad():
            for mean, value in zip(self._average.parameters(), self._network.parameters(), strict=True):
                mean.lerp_(value, 1 - keep)

    def _validate(self, batches: list[Clip]) -> None:
        score = validate(self._average, batches)
        self._journal.write("validation", step=self._step, clips=self._clips, **asdict(score))
        self._journal.plot()

    def _clips_of(self, source: ClipSource, stage: Stage) -> Iterator[Clip]:
        options = self._options
        left = MAX_STEPS if options.hours is not None else options.steps - self._step + 1
        data = ClipDataset(source, options.seed, stage.frames, self._clips, left * stage.clips)
        loader = DataLoader(
            data,
            stage.clips,
            num_workers=options.workers,
            prefetch_factor=4 if options.workers else None,
            worker_init_fn=_be_nice,
            pin_memory=_is_cuda(options.device),
        )
        return iter(loader)


def optimizer_for(network: CompactTAM) -> torch.optim.AdamW:
    """Return AdamW over four groups: heads, then trunk, each with and without weight decay.

    The trunk (stem and stages) has its own learning rate and is frozen in some stages. Vectors have no weight
    decay.
    """
    encoder = network.image_encoder
    trunk = [*encoder.stem.parameters(), *encoder.stages.parameters()]
    in_trunk = {id(parameter) for parameter in trunk}
    heads = [p for p in network.parameters() if id(p) not in in_trunk]
    groups = [
        {"params": [p for p in parameters if (p.ndim > 1) == decays], "weight_decay": 0.03 if decays else 0.0}
        for parameters in (heads, trunk)
        for decays in (True, False)
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), foreach=True)


def new_network() -> CompactTAM:
    """Return an untrained network.

    Its presence head is biased towards "present", which is more frequent in training.
    """
    network = CompactTAM()
    with torch.no_grad():
        last = network.mask_decoder.presence_head[-1]
        assert isinstance(last, nn.Linear)
        last.bias.fill_(2.0)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _is_cuda(device: str) -> bool:
    return torch.device(device).type == "cuda"


def _be_nice(_worker: int) -> None:
    import os

    os.nice(5)


def _moved(batch: Clip, device: str) -> Clip:
    return batch if device == "cpu" else Clip(*(value.to(device, non_blocking=True) for value in batch))


def _write_recipe(options: TrainingOptions) -> None:
    import onnxruntime

    recipe = asdict(options) | {
        "material": str(options.material),
        "out": str(options.out),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "opencv": cv2.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
        "stages_given": [asdict(stage) for stage in options.stages],
    }
    (options.out / "recipe.json").write_text(json.dumps(recipe, indent=1, default=str) + "\n")
