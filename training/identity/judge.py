"""Measures how well vectors of crops separate right boxes from wrong ones, with one threshold for all."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from efftam_ros.core.errors import InputError
from training import checkpoints
from training.identity import views
from training.identity.crops import Pictures, load_pictures
from training.identity.network import (
    SIDE,
    TEACHER_DEVIATION,
    TEACHER_MEAN,
    TEACHER_SIZE,
    IdentityNetwork,
)

FALSE_ALARMS = (0.01, 0.03, 0.10)
BATCH = 512


@dataclass(frozen=True)
class Separation:
    """How well likeness separates boxes of the same object (right) from boxes of others (wrong).

    ``right``, ``wrong``: numbers of pairs. ``area``: area under the ROC curve. ``found``: shares of the wrong
    pairs below the thresholds that refuse 1, 3 and 10 % of the right pairs. ``kinds``: for each kind of
    object the area and the share found at 3 %.
    """

    right: int
    wrong: int
    area: float
    found: tuple[float, ...]
    kinds: dict[str, tuple[float, float]]

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON; NaN becomes None."""
        return {name: _known(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        shares = " / ".join(f"{share:.3f}" for share in self.found)
        kinds = ", ".join(f"{name} {area:.3f} {share:.2f}" for name, (area, share) in self.kinds.items())
        return f"area {self.area:.4f}, found {shares} of {self.wrong} (right {self.right}); {kinds}"


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _known(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def area_under_curve(right: NDArray[np.float64], wrong: NDArray[np.float64]) -> float:
    """Return the probability that a right value is larger than a wrong one; NaN if either is empty."""
    if not len(right) or not len(wrong):
        return float("nan")
    ranks = np.concatenate([right, wrong]).argsort().argsort() + 1
    return float((ranks[: len(right)].sum() - len(right) * (len(right) + 1) / 2) / (len(right) * len(wrong)))


def share_found(right: NDArray[np.float64], wrong: NDArray[np.float64], false_alarms: float) -> float:
    """Return the share of wrong values below a threshold; NaN if there are no right or no wrong values.

    The share ``false_alarms`` of the right values is below the threshold.
    """
    if not len(right) or not len(wrong):
        return float("nan")
    return float(np.mean(wrong < np.quantile(right, false_alarms)))


def separation(
    pictures: Pictures,
    describe: Callable[[Tensor], Tensor],
    device: str,
    height: int = SIDE,
    width: int = SIDE,
) -> Separation:
    """Measure the separation on held-out pictures.

    The first picture of each object is compared with its later pictures (right) and with pictures of other
    objects of the same footage (wrong). ``describe``: returns unit vectors [n,m] of crops float32
    [n,3,height,width] BGR, 0..255.
    """
    held = np.flatnonzero(pictures.held)
    random = torch.Generator(device).manual_seed(0)
    vectors = []
    with torch.no_grad():
        for start in range(0, len(held), BATCH):
            rows = held[start : start + BATCH]
            boxes = torch.from_numpy(pictures.boxes[rows]).to(device)
            size = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
            boxes = boxes + 0.05 * size * torch.randn(boxes.shape, generator=random, device=device)
            pixels = torch.from_numpy(pictures.pixels[rows]).to(device)
            vectors.append(describe(views.cropped(pixels, boxes, height, width)).float().cpu().numpy())
    if not vectors:
        return Separation(0, 0, float("nan"), (), {})
    found, objects, groups = np.concatenate(vectors), pictures.objects[held], pictures.groups[held]
    right: dict[str, list[NDArray[np.float64]]] = {}
    wrong: dict[str, list[NDArray[np.float64]]] = {}
    rng = np.random.default_rng(0)
    for number in np.unique(objects):
        own = np.flatnonzero(objects == number)
        own = own[np.argsort(pictures.frames[held[own]], kind="stable")]
        others = np.flatnonzero((groups == groups[own[0]]) & (objects != number))
        others = rng.choice(others, min(len(others), 60), replace=False)
        kind = str(pictures.kinds[held[own[0]]])
        right.setdefault(kind, []).append(found[own[1:]] @ found[own[0]])
        wrong.setdefault(kind, []).append(found[others] @ found[own[0]])
    joined = {kind: (np.concatenate(right[kind]), np.concatenate(wrong[kind])) for kind in right}
    all_right = np.concatenate([values for values, _ in joined.values()])
    all_wrong = np.concatenate([values for _, values in joined.values()])
    kinds = {
        kind: (round(area_under_curve(*both), 4), round(share_found(*both, 0.03), 3))
        for kind, both in sorted(joined.items())
    }
    return Separation(
        len(all_right),
        len(all_wrong),
        area_under_curve(all_right, all_wrong),
        tuple(share_found(all_right, all_wrong, level) for level in FALSE_ALARMS),
        kinds,
    )


def load_network(run: Path) -> IdentityNetwork:
    """Load the averaged weights of a run's folder, for use. Raises InputError if there are none."""
    weights, recipe = run / checkpoints.WEIGHTS, run / "recipe.json"
    if not weights.is_file() or not recipe.is_file():
        raise InputError(f"{run} is not a training run with weights; train first, or name it with --run")
    network = IdentityNetwork(json.loads(recipe.read_text(encoding="utf-8"))["width"])
    network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True)["model"])
    return network.eval()


def of_onnx(path: Path) -> tuple[Callable[[Tensor], Tensor], int, int]:
    """Open an ONNX file; return a function that describes crops, and the height and width of its crops.

    The file is the network that ships, or a teacher with the input float32 [n,3,h,w] RGB, normalised as for
    ImageNet. Raises InputError if it is neither.
    """
    import onnxruntime

    if not path.is_file():
        raise InputError(f"there is no network {path}; name an ONNX file")
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
    except Exception as error:  # onnxruntime's exceptions, or several inputs
        raise InputError(f"{path} is not a network with one input: {str(error).splitlines()[0]}") from None
    is_own = given.type == "tensor(uint8)"

    def describe(crops: Tensor) -> Tensor:
        if is_own:
            pixels = crops.permute(0, 2, 3, 1).round().to(torch.uint8)
        else:
            mean, deviation = (torch.tensor(v)[:, None, None] for v in (TEACHER_MEAN, TEACHER_DEVIATION))
            pixels = (crops.flip(1) / 255.0 - mean) / deviation
        found = [session.run(None, {given.name: one.numpy()})[0] for one in pixels.cpu().split(1)]
        return torch.nn.functional.normalize(torch.from_numpy(np.concatenate(found)), dim=1)

    return describe, *((SIDE, SIDE) if is_own else TEACHER_SIZE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=Path("runs/identity_data"), help="default %(default)s")
    parser.add_argument(
        "--run", type=Path, default=Path("runs/identity"), dest="folder", help="default %(default)s"
    )
    parser.add_argument(
        "--network", type=Path, metavar="ONNX", help="network to judge instead of a run's weights"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")


def run(args: argparse.Namespace) -> int:
    pictures = load_pictures(args.data)
    if args.network is None:
        found = separation(pictures, load_network(args.folder), "cpu")
    else:
        describe, height, width = of_onnx(args.network)
        found = separation(pictures, describe, "cpu", height, width)
    print(found)
    if args.json is not None:
        args.json.write_text(json.dumps(found.as_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return 0
