"""Trains the identity network, from a teacher's vectors and from objects that are followed over time.

Each step uses several views of several objects of the same footage, parts of objects, and random boxes. There
are three losses. Distillation: the teacher's vectors and the similarities within the batch. A logistic loss
on the similarity of each pair, with one scale for all footage, so that one threshold serves everywhere (the
pairwise loss of SigLIP, Zhai et al., ICCV 2023). A softmax over all objects with a margin (CosFace, Wang et
al., CVPR 2018).
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from efftam_ros.core.errors import InputError
from training import checkpoints
from training.convolutional_graph import ConvolutionalGraph
from training.identity import views
from training.identity.crops import Pictures, load_images, load_pictures
from training.identity.judge import load_network, separation
from training.identity.network import (
    SIDE,
    SIZE,
    TEACHER_DEVIATION,
    TEACHER_MEAN,
    TEACHER_SIZE,
    IdentityNetwork,
)

VIEWS = 4  # number of views of each object in a batch
OBJECTS_OF_A_GROUP = 8
AVERAGE = 0.999
MARGIN, SCALE = 0.25, 24.0  # margin and scale of the cosines in the softmax over objects
REPORT_STEPS, CHECKPOINT_S = 200, 60.0
DISTILLED = 256  # number of crops of a batch that the teacher describes
VIEW_PX = 128  # px; side of the crops before they are resized for the network


@dataclass(frozen=True)
class Options:
    """Options of a run; they are written to recipe.json in its folder."""

    data: Path
    out: Path
    teacher: Path | None = None
    steps: int = 12000
    minutes: float | None = None
    objects: int = 256
    width: int = 16
    start_from: Path | None = None
    rate: float = 3e-3
    seed: int = 0
    device: str = "cpu"


class Material:
    """The pictures on the device that trains, and the objects of each footage."""

    def __init__(self, pictures: Pictures, images: NDArray[np.uint8], device: str) -> None:
        trained = np.flatnonzero(~pictures.held)
        self.pixels = torch.from_numpy(pictures.pixels[trained]).to(device)
        self.boxes = torch.from_numpy(pictures.boxes[trained]).to(device)
        self.images = torch.from_numpy(images).to(device)
        objects, numbers = np.unique(pictures.objects[trained], return_inverse=True)
        self.count = len(objects)
        self._rows = [np.flatnonzero(numbers == number) for number in range(self.count)]
        groups = np.array([pictures.groups[trained[rows[0]]] for rows in self._rows])
        self._groups = [np.flatnonzero(groups == group) for group in np.unique(groups)]
        weights = np.array([min(len(group), 400) ** 0.6 for group in self._groups])
        self._weights = weights / weights.sum()
        self.group_of = torch.from_numpy(np.unique(groups, return_inverse=True)[1]).to(device)

    def draw(self, objects: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Draw a batch; return the rows of its pictures and the numbers of their objects.

        Several objects are drawn of each chosen group. The batch always has the same size.
        """
        objects = min(objects, self.count)
        chosen: dict[int, None] = {}
        while len(chosen) < objects:
            members = self._groups[rng.choice(len(self._groups), p=self._weights)]
            chosen |= dict.fromkeys(rng.permutation(members)[:OBJECTS_OF_A_GROUP].tolist())
        numbers = list(chosen)[:objects]
        rows = [rng.choice(self._rows[n], VIEWS, replace=len(self._rows[n]) < VIEWS) for n in numbers]
        return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.repeat(numbers, VIEWS))


class Heads(nn.Module):
    """Parameters for training only: map to the teacher's vectors, the pairs' scale, the objects' centres."""

    def __init__(self, objects: int, teacher_size: int) -> None:
        super().__init__()
        self.to_teacher = nn.Linear(SIZE, teacher_size)
        self.pair_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.pair_offset = nn.Parameter(torch.tensor(-5.0))
        self.centres = nn.Parameter(torch.randn(objects, SIZE))


def pair_loss(vectors: Tensor, objects: Tensor, groups: Tensor, heads: Heads) -> Tensor:
    """Return the logistic loss of all pairs of a batch.

    ``vectors`` [n,SIZE]. ``objects`` [n]: number of the object in each crop; a number below 0 marks a crop
    that shows no other crop's object. ``groups`` [n]: number of the footage.
    """
    logits = heads.pair_scale.exp() * vectors @ vectors.T + heads.pair_offset
    same = (objects[:, None] == objects[None]) & (objects[:, None] >= 0)
    itself = torch.eye(len(objects), dtype=torch.bool, device=objects.device)
    right, wrong = same & ~itself, ~same & ~itself
    near = wrong & (groups[:, None] == groups[None])
    losses_right, losses_wrong = F.softplus(-logits), F.softplus(logits)
    # The most similar other objects count as much as all others of the same footage, because a tracker would
    # mistake them for the target.
    hard = torch.softmax((4.0 * logits.detach()).masked_fill(~wrong, -1e4), 1)
    from_near = (losses_wrong * near).sum(1) / near.sum(1).clamp(min=1)
    loss_wrong = (losses_wrong * hard).sum(1) + from_near + (losses_wrong * wrong).sum(1) / wrong.sum(1)
    has = right.any(1)
    loss_right = (losses_right * right).sum(1)[has] / right.sum(1)[has]
    return loss_right.mean() + 0.5 * loss_wrong.mean()


def class_loss(vectors: Tensor, objects: Tensor, heads: Heads) -> Tensor:
    """Return the softmax loss over all objects, with a margin.

    ``vectors`` [n,SIZE]. ``objects`` [n]: number of the object in each crop; crops with -1 do not count.
    """
    cosines = vectors @ F.normalize(heads.centres, dim=1).T
    margins = MARGIN * F.one_hot(objects.clamp(min=0), cosines.shape[1])
    return F.cross_entropy(SCALE * (cosines - margins), objects, ignore_index=-1)


def teacher_vectors(teacher: nn.Module, crops: Tensor) -> Tensor:
    """Return the teacher's unit vectors, float32 [n,m], of crops [n,3,h,w] BGR, 0..255."""
    crops = F.interpolate(crops, TEACHER_SIZE, mode="bilinear", align_corners=False)
    mean = torch.tensor(TEACHER_MEAN, device=crops.device)[:, None, None]
    deviation = torch.tensor(TEACHER_DEVIATION, device=crops.device)[:, None, None]
    with torch.no_grad():
        pixels = (crops.flip(1) / 255.0 - mean) / deviation
        pixels = pixels.to(next(teacher.buffers()).dtype, memory_format=torch.channels_last)
        return F.normalize(teacher(pixels).float(), dim=1)


def batch(
    material: Material, rows: Tensor, objects: Tensor, random: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Make the crops of a batch, in random order: views of pictures, parts of some, and random boxes.

    ``rows``, ``objects``: of the pictures. Returns crops [n,3,VIEW_PX,VIEW_PX], 0..255; the number of the
    object in each, -1 if no other crop shows the same; and the number of its footage.
    """
    device, few = rows.device, len(rows) // 6
    boxes, pixels = material.boxes[rows], material.pixels[rows]
    some = torch.randperm(len(rows), generator=random, device=device)[:few]
    seen = torch.cat([views.jittered(boxes, random), views.parts(boxes[some], random)])
    crops = [views.cropped(torch.cat([pixels, pixels[some]]), seen, VIEW_PX, VIEW_PX)]
    nothing = torch.full((few,), -1, device=device)
    numbers, footage = [objects, nothing], [material.group_of[objects], material.group_of[objects[some]]]
    if len(material.images):
        which = torch.randint(len(material.images), (few,), generator=random, device=device)
        anywhere = views.anywhere(few, boxes, random)
        crops.append(views.cropped(material.images[which], anywhere, VIEW_PX, VIEW_PX))
        numbers.append(nothing)
        footage.append(-1 - torch.arange(few, device=device))
    order = torch.randperm(sum(len(one) for one in crops), generator=random, device=device)
    return (
        views.changed(torch.cat(crops)[order], random),
        torch.cat(numbers)[order],
        torch.cat(footage)[order],
    )


def train(options: Options, resume: bool = False) -> dict[str, Any]:
    """Train, or continue from the last checkpoint; return the report. Raises InputError without data."""
    device = options.device
    torch.manual_seed(options.seed)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    began = time.monotonic()
    pictures, images = load_pictures(options.data), load_images(options.data)
    material = Material(pictures, images, device)
    print(
        f"{len(material.pixels)} pictures of {material.count} objects, {len(images)} images,"
        f" {int(pictures.held.sum())} pictures held out; {time.monotonic() - began:.0f} s",
        flush=True,
    )
    teacher = ConvolutionalGraph(options.teacher).to(device).eval() if options.teacher else None
    if teacher and device == "cuda":
        teacher = teacher.half()
    network = IdentityNetwork(options.width).to(device)
    if options.start_from is not None:
        network.start_from(load_network(options.start_from).state_dict())
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    heads = Heads(material.count, 512).to(device)
    average = copy.deepcopy(network).eval()
    parameters = [
        {"params": network.parameters(), "weight_decay": 0.02},
        {"params": heads.parameters(), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(parameters, options.rate)
    options.out.mkdir(parents=True, exist_ok=True)
    recipe = {name: str(v) if isinstance(v, Path) else v for name, v in vars(options).items()}
    recipe |= {"objects_of_data": material.count, "pictures": len(material.pixels), "images": len(images)}
    _write(options.out / "recipe.json", recipe | {"steps_done": 0})
    step, spent = 0, 0.0
    if resume:
        state = checkpoints.load(options.out / checkpoints.RESUME)
        network.load_state_dict(state["network"])
        average.load_state_dict(state["average"])
        heads.load_state_dict(state["heads"])
        optimizer.load_state_dict(state["optimizer"])
        step, spent = state["step"], state["spent"]
    rng = np.random.default_rng((options.seed, step))
    random = torch.Generator(device).manual_seed(options.seed + step)
    start, saved, report = time.monotonic() - spent, time.monotonic(), {}
    if teacher:
        print(
            "teacher",
            separation(pictures, lambda c: teacher_vectors(teacher, c), device, 256, 128),
            flush=True,
        )

    pool = ThreadPoolExecutor(1)
    drawn = pool.submit(material.draw, options.objects, rng)

    def done() -> float:
        """Return the finished share of the run's time or steps; 1 or more at its end."""
        if options.minutes is not None:
            return (time.monotonic() - start) / (60 * options.minutes)
        return step / options.steps

    while (share := done()) < 1.0:
        warm = min(1.0, step / 300)
        for group in optimizer.param_groups:
            group["lr"] = options.rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        rows, objects = (one.to(device, non_blocking=True) for one in drawn.result())
        drawn = pool.submit(material.draw, options.objects, rng)
        crops, numbers, groups = batch(material, rows, objects, random)
        square = F.interpolate(crops, (SIDE, SIDE), mode="bilinear", antialias=True)
        network.train()
        with torch.autocast(device, torch.bfloat16):
            vectors = network(square.contiguous(memory_format=torch.channels_last))
        vectors = vectors.float()
        losses = {
            "pairs": pair_loss(vectors, numbers, groups, heads),
            "classes": 0.15 * class_loss(vectors, numbers, heads),
        }
        if teacher:
            wanted = teacher_vectors(teacher, crops[:DISTILLED])
            own = vectors[: len(wanted)]
            given = F.normalize(heads.to_teacher(own), dim=1)
            losses["teacher"] = (1 - (given * wanted).sum(1)).mean()
            losses["teacher"] = losses["teacher"] + 2 * F.mse_loss(own @ own.T, wanted @ wanted.T)
        loss = torch.stack(list(losses.values())).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()
        step += 1
        _follow(average, network, min(AVERAGE, step / (step + 20)))
        if step % REPORT_STEPS == 0:
            values = {name: round(value.item(), 4) for name, value in losses.items()}
            print(f"step {step}, {100 * share:.0f} %, {time.monotonic() - start:.0f} s: {values}", flush=True)
        if time.monotonic() - saved > CHECKPOINT_S:
            _save(options.out, network, average, heads, optimizer, step, time.monotonic() - start)
            saved = time.monotonic()
            print(f"step {step}", separation(pictures, average, device), flush=True)
    _save(options.out, network, average, heads, optimizer, step, time.monotonic() - start)
    _write(options.out / "recipe.json", recipe | {"steps_done": step})
    found = separation(pictures, average, device)
    report = {"step": step, "seconds": round(time.monotonic() - start), **found.as_dict()}
    print(found, flush=True)
    _write(options.out / "report.json", report)
    return report


def _follow(average: nn.Module, network: nn.Module, kept: float) -> None:
    """Update the running average of the weights; the share ``kept`` of the old average stays."""
    olds, news = average.state_dict().values(), network.state_dict().values()
    pairs = [(old, new) for old, new in zip(olds, news, strict=True) if old.is_floating_point()]
    torch._foreach_lerp_([old for old, _ in pairs], [new for _, new in pairs], 1 - kept)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _save(
    out: Path,
    network: nn.Module,
    average: nn.Module,
    heads: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: int,
    spent: float,
) -> None:
    checkpoints.save(
        out / checkpoints.WEIGHTS, {"model": {n: v.cpu() for n, v in average.state_dict().items()}}
    )
    state: dict[str, Any] = {
        "network": network.state_dict(),
        "average": average.state_dict(),
        "heads": heads.state_dict(),
    }
    state |= {"optimizer": optimizer.state_dict(), "step": step, "spent": spent}
    checkpoints.save(out / checkpoints.RESUME, state)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=Path("runs/identity_data"), help="default %(default)s")
    parser.add_argument("--out", type=Path, default=Path("runs/identity"), help="default %(default)s")
    parser.add_argument("--teacher", type=Path, help="ONNX file of a network to distil; default: none")
    parser.add_argument("--steps", type=int, default=12000, help="default %(default)s")
    parser.add_argument("--minutes", type=float, help="length of the run, instead of --steps")
    parser.add_argument("--objects", type=int, default=256, help="objects in a step; default %(default)s")
    parser.add_argument("--width", type=int, default=16, help="width of the network; default %(default)s")
    parser.add_argument(
        "--start-from", type=Path, metavar="RUN", help="begin with weights of a run of at most this width"
    )
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate; default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default %(default)s")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="default %(default)s")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")


def run(args: argparse.Namespace) -> int:
    values = {name: value for name, value in vars(args).items() if name in Options.__dataclass_fields__}
    options = Options(**values)
    if options.teacher is not None and not options.teacher.is_file():
        raise InputError(f"there is no teacher {options.teacher}; name an ONNX file, or leave --teacher out")
    train(options, args.resume)
    return 0
