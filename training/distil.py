"""Distils a new image encoder from other encoders, before it is trained to track.

The student's stride-16 features, after a linear map used only here, are aligned with those of a
tracking-trained backbone (cosine distance of standardised features), and its outputs with those of a bundle's
encoder, so that the bundle's heads work on them from the start. The teachers run in onnxruntime; none of
their weights are copied.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from efftam_ros.runtime.bundle import Bundle
from efftam_workshop.model.compact.network import CompactImageEncoder, CompactTAM
from training import checkpoints
from training.clips import ClipDataset, ClipSource
from training.journal import Journal
from training.lesson import Backbone
from training.material import load_material
from training.mixture import Mixture
from training.norms import add_norms, merge_norms
from training.schedule import learning_rate
from training.tensor_runner import TensorRunner
from training.unroll import normalised
from training.validation import validation_clips
from training.warm_start import copy_heads

CLIP_FRAMES = 2  # images per clip: composing whole clips is cheaper
STATISTICS_IMAGES = 128  # images from which the teachers' means and variances are estimated
HELD_OUT_CLIPS = 16
OUTPUT_WEIGHTS = {"features": 1.0, "features_s8": 0.5, "features_s4": 0.5}
DIRECTION_WEIGHT = 1.0
SAVE_EVERY, REPORT_EVERY = 100, 20
BACKBONE = "backbone"


@dataclass(frozen=True)
class DistilOptions:
    """Options. ``backbone``: an ONNX graph from ``image`` [1,3,h,w] RGB 0..255 to ``features``
    [1,c,h/16,w/16]."""

    material: Path
    out: Path
    backbone: Path
    bundle: Path
    steps: int = 3000
    images: int = 32
    rate: float = 2e-3
    seed: int = 0
    workers: int = 1
    threads: int = 0


class Teachers:
    """Features of both teachers for a batch of images uint8 [n,3,S,S], standardised per channel."""

    def __init__(self, backbone: Path, bundle: Bundle) -> None:
        self._backbone = Backbone(backbone)
        self._encoder = TensorRunner(bundle.graphs["image_encoder"].path)
        self._mean, self._std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (bundle.mean, bundle.std))
        self._statistics: dict[str, tuple[Tensor, Tensor]] = {}

    def measure(self, images: Tensor) -> None:
        """Estimate means and standard deviations from these images."""
        for name, value in self._raw(images).items():
            deviation = value.std((0, 2, 3), keepdim=True).clamp(min=1e-4)
            self._statistics[name] = value.mean((0, 2, 3), keepdim=True), deviation

    def __call__(self, images: Tensor) -> dict[str, Tensor]:
        raw = self._raw(images)
        return {name: (raw[name] - mean) / std for name, (mean, std) in self._statistics.items()}

    def standardised(self, name: str, value: Tensor) -> Tensor:
        mean, std = self._statistics[name]
        return (value - mean) / std

    def channels(self) -> int:
        """Channels of the backbone's features."""
        return int(self._statistics[BACKBONE][0].shape[1])

    def _raw(self, images: Tensor) -> dict[str, Tensor]:
        seen: list[dict[str, Tensor]] = []
        for image in images.float().split(1):
            outputs = self._encoder({"image": (image / 255 - self._mean) / self._std})
            seen.append({BACKBONE: self._backbone(image)} | outputs)
        return {name: torch.cat([one[name] for one in seen]) for name in seen[0]}


class Student(nn.Module):
    """An image encoder with batch norms in its trunk, and the linear map to the backbone's features."""

    def __init__(self, encoder: CompactImageEncoder, backbone_channels: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.map = nn.Conv2d(encoder.neck16.in_channels, backbone_channels, 1)
        add_norms(encoder, ("stem", "stages"))

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        taken = self.encoder.trunk(image)
        outputs = dict(zip(OUTPUT_WEIGHTS, self.encoder.necks(*taken), strict=True))
        return outputs | {BACKBONE: self.map(taken[2])}

    def merged(self) -> CompactImageEncoder:
        """A copy of the encoder with the norms merged."""
        encoder = copy.deepcopy(self.encoder).eval()
        merge_norms(encoder)
        return encoder


def distances(teachers: Teachers, seen: dict[str, Tensor], taught: dict[str, Tensor]) -> dict[str, Tensor]:
    """Cosine distance to the backbone and, for each output, the unexplained share of its variance."""
    out = {BACKBONE: 1 - F.cosine_similarity(seen[BACKBONE], taught[BACKBONE], 1).mean()}
    for name in OUTPUT_WEIGHTS:
        out[name] = (teachers.standardised(name, seen[name]) - taught[name]).square().mean()
    return out


def weighed(parts: dict[str, Tensor]) -> Tensor:
    total = DIRECTION_WEIGHT * parts[BACKBONE]
    for name, weight in OUTPUT_WEIGHTS.items():
        total = total + weight * parts[name]
    return total


def distil(
    options: DistilOptions, network: CompactTAM, resume: bool, progress: Callable[[int, str], None]
) -> None:
    """Train ``network``'s image encoder and write weights.pt, including the bundle's heads, to
    ``options.out``.

    ``resume`` continues from the folder's checkpoint with the next images of the sequence. Raises InputError
    when a teacher is missing or the bundle's heads do not fit.
    """
    cv2.setNumThreads(0)  # before workers are forked: OpenCV's thread pool does not survive it
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    bundle = Bundle.load(options.bundle)
    copy_heads(network, bundle)
    teachers = Teachers(options.backbone, bundle)
    held_out = ClipSource(load_material(options.material, "validation"), Mixture(), network.spec.side)
    tests = torch.cat([b.images[:, 0] for b in validation_clips(held_out, HELD_OUT_CLIPS)])
    source = ClipSource(load_material(options.material, "train"), Mixture(), network.spec.side)
    first = (source.clip(options.seed + 1, index, 1).images for index in range(STATISTICS_IMAGES))
    teachers.measure(torch.cat(list(first)))
    student = Student(network.image_encoder, teachers.channels()).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(student.parameters(), betas=(0.9, 0.99), weight_decay=0.02, foreach=True)
    options.out.mkdir(parents=True, exist_ok=True)
    journal, step = Journal(options.out), 0
    resume_path = options.out / checkpoints.RESUME
    if resume:
        content = checkpoints.load(resume_path)
        student.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
        step = content["step"]
    taught_tests = teachers(tests)
    for images in _images(source, options, step):
        student.train()
        parts = distances(teachers, student(normalised(network, images)), teachers(images))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options.rate, step, step / options.steps)
        optimizer.zero_grad(set_to_none=True)
        weighed(parts).backward()
        nn.utils.clip_grad_norm_(student.parameters(), 5.0, foreach=True)
        optimizer.step()
        step += 1
        if step % REPORT_EVERY == 0:
            journal.write("train", step=step, **{name: part.item() for name, part in parts.items()})
        if step % SAVE_EVERY == 0 or step == options.steps:
            student.eval()
            with torch.inference_mode():
                tested = distances(teachers, student(normalised(network, tests)), taught_tests)
            journal.write("validation", step=step, **{name: part.item() for name, part in tested.items()})
            checkpoints.save(
                resume_path,
                {"model": student.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
            )
            _save(options.out, network, student.merged())
        progress(step, json.dumps({name: round(part.item(), 3) for name, part in parts.items()}))


def _save(folder: Path, network: CompactTAM, encoder: CompactImageEncoder) -> None:
    whole = copy.copy(network)
    whole._modules = network._modules | {"image_encoder": encoder}
    checkpoints.save_weights(folder / checkpoints.WEIGHTS, whole)


def _images(source: ClipSource, options: DistilOptions, step: int) -> Iterator[Tensor]:
    clips = options.images // CLIP_FRAMES
    left = options.steps - step
    data = ClipDataset(source, options.seed, CLIP_FRAMES, step * clips, left * clips)
    workers = options.workers
    loader = DataLoader(data, clips, num_workers=workers, prefetch_factor=4 if workers else None)
    for batch in loader:
        yield batch.images.flatten(0, 1)
