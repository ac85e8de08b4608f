"""Shortens a trunk: keeps the first stages of a bundle and distils the later ones into fewer blocks.

What both trunks begin with is copied and stays as it is, so that an image's features up to there are computed
once and stored. The blocks that follow then learn the bundle's features at stride 16, on which the bundle's
heads work as before.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import cv2
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle
from efftam_workshop.model.compact.network import CompactImageEncoder, CompactTAM, with_context
from efftam_workshop.model.loading import load_bundle_network, load_weights
from training import checkpoints
from training.clips import ClipDataset, ClipSource
from training.hardness import HARD
from training.journal import Journal
from training.material import load_material
from training.mixture import Mixture
from training.schedule import learning_rate
from training.unroll import normalised
from training.validation import validation_clips
from training.warm_start import copy_heads, copy_trunk

CLIP_FRAMES = 2  # images per clip: composing whole clips is cheaper
CLIPS = 16  # per batch while features are computed
HELD_OUT_CLIPS = 64
STATISTICS_IMAGES = 2048  # from which the deviations of features are estimated
TRUNK_WEIGHT = 0.5  # of the trunk's features at stride 16, beside the encoder's
WEIGHT_AVERAGE = 0.998
SAVE_EVERY, REPORT_EVERY = 500, 50


@dataclass(frozen=True)
class ShortenOptions:
    """Options. ``images``: how many are looked at; ``batch``: how many of them a step compares;
    ``continue_from``: weights of an earlier run, whose later stages and necks are trained on."""

    material: Path
    out: Path
    bundle: Path
    continue_from: Path | None = None
    images: int = 40000
    steps: int = 5000
    batch: int = 32
    rate: float = 1e-3
    mixture: Mixture = field(default_factory=Mixture)
    seed: int = 0
    workers: int = 1
    threads: int = 0


@dataclass(frozen=True)
class Features:
    """The long encoder's features of n images, float16: after the stages that both trunks begin with
    [n,c,h,w], the trunk's at stride 16, and those of stride 32 after their neck."""

    first: Tensor
    at16: Tensor
    at32: Tensor

    def of(self, rows: Tensor) -> Features:
        """Those of the images with these numbers."""
        return Features(self.first[rows], self.at16[rows], self.at32[rows])

    def __len__(self) -> int:
        return len(self.first)


def common_stages(short: CompactImageEncoder, long: CompactImageEncoder) -> int:
    """How many stages both trunks begin with, that of stride 16 not counted.

    Raises InputError when there is none.
    """
    alike = (
        [value.shape for value in one.parameters()] == [value.shape for value in other.parameters()]
        for one, other in zip(short.stages, long.stages, strict=False)
    )
    count = sum(1 for _ in itertools.takewhile(bool, alike))
    if count == 0:
        raise InputError(
            "the trunks have no stage in common; give a bundle and a configuration whose trunks begin alike"
        )
    return min(count, short.taken[2], long.taken[2])


@torch.inference_mode()
def features_of(network: CompactTAM, stages: int, images: Iterable[Tensor]) -> Features:
    """Features of batches of images uint8 [n,3,S,S] in ``network``'s encoder, which both trunks share up to
    ``stages`` stages."""
    encoder = network.image_encoder
    first, at16, at32 = [], [], []
    for batch in images:
        x = normalised(network, batch).contiguous(memory_format=torch.channels_last)
        x = encoder.activation(encoder.stem(x))
        for index, stage in enumerate(encoder.stages):
            x = stage(x)
            if index == stages - 1:
                first.append(x.half())
            if index == encoder.taken[2]:
                at16.append(x.half())
        at32.append(encoder.neck32(x).half())
    return Features(torch.cat(first), torch.cat(at16), torch.cat(at32))


class LaterStages(nn.Module):
    """What follows the stages that both trunks begin with: maps their features to those of the trunk at
    stride 16 and of the encoder."""

    def __init__(self, encoder: CompactImageEncoder, stages: int) -> None:
        super().__init__()
        self.stages = encoder.stages[stages:]
        self.neck16, self.neck32 = encoder.neck16, encoder.neck32
        self.last16 = encoder.taken[2] - stages

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for index, stage in enumerate(self.stages):
            x = stage(x)
            if index == self.last16:
                at16 = x
        return at16, with_context(self.neck16(at16), self.neck32(x))


class Teacher:
    """Compares features with the long encoder's: unexplained shares of the variance."""

    def __init__(self, encoder: CompactImageEncoder, features: Features) -> None:
        self._neck16 = encoder.neck16
        self._deviations = [v.std((0, 2, 3), keepdim=True).clamp(min=1e-4) for v in self._wanted(features)]

    @torch.no_grad()
    def _wanted(self, features: Features) -> tuple[Tensor, Tensor]:
        at16 = features.at16.float()
        return at16, with_context(self._neck16(at16), features.at32.float())

    def distances(self, later: LaterStages, features: Features) -> dict[str, Tensor]:
        found = later(features.first.float().contiguous(memory_format=torch.channels_last))
        compared = zip(("trunk", "features"), found, self._wanted(features), self._deviations, strict=True)
        return {name: ((one - other) / std).square().mean() for name, one, other, std in compared}


def shorten(options: ShortenOptions, network: CompactTAM, progress: Callable[[int, str], None]) -> None:
    """Fill ``network``, whose trunk is the shorter one, and write weights.pt, log.jsonl and recipe.json to
    ``options.out``.

    ``progress``: called with the number of images looked at and steps done together, and the latest figures.
    Raises InputError when the bundle's heads or trunk do not fit.
    """
    cv2.setNumThreads(0)  # before workers are forked: OpenCV's thread pool does not survive it
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    bundle = Bundle.load(options.bundle)
    teacher = load_bundle_network(bundle.folder).eval()
    assert isinstance(teacher, CompactTAM)
    encoder = network.image_encoder
    stages = common_stages(encoder, teacher.image_encoder)
    copy_heads(network, bundle)
    copy_trunk(network, bundle)
    for neck in ("neck16", "neck8", "neck4"):
        getattr(encoder, neck).load_state_dict(getattr(teacher.image_encoder, neck).state_dict())
    later = LaterStages(encoder, stages)
    if options.continue_from is not None:
        earlier = load_weights(options.continue_from, network.spec.name)
        assert isinstance(earlier, CompactTAM)
        later.load_state_dict(LaterStages(earlier.image_encoder, stages).state_dict())
    options.out.mkdir(parents=True, exist_ok=True)
    recipe = {
        name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()
    }
    # Of a bundle it is not known what its own data allow: the strictest terms hold.
    recipe |= {"config": network.spec.name, "hours": None, "open_data_only": False}
    (options.out / "recipe.json").write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8")

    held_out = ClipSource(load_material(options.material, "validation"), Mixture(), network.spec.side)
    tests = features_of(teacher, stages, (c.images[:, 0] for c in validation_clips(held_out, HELD_OUT_CLIPS)))
    looked_at = _counted(_images(options, network.spec.side), lambda n: progress(n, "looking"))
    features = features_of(teacher, stages, looked_at)
    judge = Teacher(teacher.image_encoder, features.of(torch.arange(min(len(features), STATISTICS_IMAGES))))

    average = copy.deepcopy(later)
    optimizer = torch.optim.AdamW(later.parameters(), betas=(0.9, 0.99), weight_decay=0.01, foreach=True)
    rows = torch.Generator().manual_seed(options.seed)
    journal = Journal(options.out)
    for step in range(1, options.steps + 1):
        batch = features.of(torch.randint(len(features), (options.batch,), generator=rows))
        parts = judge.distances(later, batch)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options.rate, step - 1, (step - 1) / options.steps)
        optimizer.zero_grad(set_to_none=True)
        (parts["features"] + TRUNK_WEIGHT * parts["trunk"]).backward()
        nn.utils.clip_grad_norm_(later.parameters(), 5.0, foreach=True)
        optimizer.step()
        with torch.no_grad():
            keep = min(WEIGHT_AVERAGE, step / (step + 9))
            for mean, value in zip(average.parameters(), later.parameters(), strict=True):
                mean.lerp_(value, 1 - keep)
        figures = {name: round(part.item(), 4) for name, part in parts.items()}
        if step % REPORT_EVERY == 0:
            journal.write("train", step=step, **figures)
        if step % SAVE_EVERY == 0 or step == options.steps:
            with torch.inference_mode():
                tested = judge.distances(average, tests)
            journal.write("validation", step=step, **{name: part.item() for name, part in tested.items()})
            _save(options.out, network, average)
        progress(len(features) + step, json.dumps(figures))


def _images(options: ShortenOptions, side: int) -> Iterator[Tensor]:
    """Batches of images uint8 [n,3,side,side] of training clips, harder ones among them."""
    source = ClipSource(load_material(options.material, "train"), options.mixture, side, HARD)
    clips = options.images // CLIP_FRAMES
    data = ClipDataset(source, options.seed, CLIP_FRAMES, 0, clips)
    workers = options.workers
    for batch in DataLoader(data, CLIPS, num_workers=workers, prefetch_factor=4 if workers else None):
        yield batch.images.flatten(0, 1)


def _counted(batches: Iterable[Tensor], tell: Callable[[int], None]) -> Iterator[Tensor]:
    count = 0
    for batch in batches:
        yield batch
        count += len(batch)
        tell(count)


def _save(folder: Path, network: CompactTAM, later: LaterStages) -> None:
    """Write the network's weights with ``later``'s."""
    whole = copy.deepcopy(network)
    encoder = whole.image_encoder
    first = len(encoder.stages) - len(later.stages)
    for mine, other in zip(encoder.stages[first:], later.stages, strict=True):
        mine.load_state_dict(other.state_dict())
    encoder.neck16.load_state_dict(later.neck16.state_dict())
    encoder.neck32.load_state_dict(later.neck32.state_dict())
    checkpoints.save_weights(folder / checkpoints.WEIGHTS, whole)
