"""Train a network, or resume its training; write checkpoints, log and plot."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path

from torch import Tensor
from tqdm import tqdm

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle
from efftam_workshop.model.compact.network import CompactTAM
from efftam_workshop.model.loading import load_bundle_network, load_checkpoint
from training.backbone import load_backbone, packaged_weights
from training.clips import ClipSource
from training.hardness import EASY, HARD
from training.material import MATERIAL, load_material
from training.mixture import Mixture, parse_mixture
from training.schedule import DEFAULT_STAGES, parse_stages
from training.ship import RUN, require_open
from training.train import TrainingOptions, new_network, train
from training.warm_start import warm_start

WARM_START_CLIPS = 150


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--material",
        type=Path,
        default=MATERIAL,
        help="dataset that the command data made; default %(default)s",
    )
    parser.add_argument("--out", type=Path, default=RUN, help="the run's folder; default %(default)s")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, default=20000, help="default %(default)s")
    length.add_argument(
        "--hours", type=float, help="end after this time, sessions before --resume included; default: none"
    )
    parser.add_argument(
        "--stages",
        default=DEFAULT_STAGES,
        help="start (share of steps or hours):frames:clips:frozen, top or trunk, ...; default %(default)s",
    )
    parser.add_argument(
        "--mixture",
        default=",".join(str(share) for share in astuple(Mixture())),
        help="shares of composites, footage and photographs; held-out clips keep the default %(default)s",
    )
    parser.add_argument("--rate", type=float, default=6e-4, help="highest learning rate; default %(default)s")
    parser.add_argument(
        "--trunk-rate", type=float, default=1.5e-4, help="that of the trunk; default %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="default %(default)s")
    parser.add_argument(
        "--validate-every", type=int, default=500, metavar="STEPS", help="default %(default)s"
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--resume", action="store_true", help="continue the run in --out")
    start.add_argument(
        "--continue-from",
        type=Path,
        metavar="BUNDLE",
        help="start with all weights of a bundle, or of a run's weights.pt",
    )
    start.add_argument(
        "--heads-from",
        type=Path,
        metavar="BUNDLE",
        help="start with the heads of a bundle with another encoder",
    )
    parser.add_argument(
        "--easy",
        action="store_true",
        help="clips like the held-out ones: no cast shadows, no reduced resolution",
    )
    parser.add_argument(
        "--memory-faults",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of clips that store wrong masks for a few frames, 0 to 1; default %(default)s",
    )
    parser.add_argument(
        "--open-data-only", action="store_true", help="leave out data licensed for research use only"
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="processes that compose clips; default %(default)s"
    )
    parser.add_argument("--threads", type=int, default=0, help="threads of PyTorch; default: PyTorch chooses")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; default %(default)s")


def run(args: argparse.Namespace) -> int:
    args.hardness, args.stages = EASY if args.easy else HARD, parse_stages(args.stages)
    args.mixture = parse_mixture(args.mixture)
    given = {field.name: getattr(args, field.name) for field in fields(TrainingOptions) if field.name in args}
    options, network = TrainingOptions(**given), new_network()
    if not args.resume:
        _start(network, args)
    with _step_bar(args.steps if args.hours is None else None) as progress:
        train(options, network, args.resume, progress)
    print(f"{args.out}: weights.pt, resume.pt, log.jsonl, progress.png, recipe.json")
    return 0


@contextmanager
def _step_bar(total: int | None) -> Iterator[Callable[[int, str], None]]:
    """Show a progress bar; yield a function that takes the number of finished steps and the latest scores."""
    # ``delay`` shows the bar only after the first step, so that an earlier error is reported on a single
    # line.
    with tqdm(total=total, unit="step", dynamic_ncols=True, mininterval=2, delay=0.1) as bar:

        def progress(step: int, summary: str) -> None:
            bar.set_postfix_str(summary, refresh=False)
            bar.update(step - bar.n)

        yield progress


def _start(network: CompactTAM, args: argparse.Namespace) -> None:
    """Load the initial weights that the options request, and print their origin."""
    if args.open_data_only:
        for start in filter(None, (args.continue_from, args.heads_from)):
            require_open(start)
    if args.continue_from is not None:
        network.load_state_dict(_all_weights(args.continue_from, network.spec.name))
        print(f"all weights from {args.continue_from}")
        return
    path, name = packaged_weights()
    load_backbone(network.image_encoder, path)
    print(f"trunk from {name}")
    if args.heads_from is not None:
        material = load_material(args.material, "train", args.open_data_only)
        source = ClipSource(material, Mixture(), network.spec.side)
        pictures = (
            image.permute(1, 2, 0).numpy()
            for index in range(WARM_START_CLIPS)
            for image in source.clip(args.seed + 1, index, 2).images
        )
        explained = warm_start(network, Bundle.load(args.heads_from), pictures)
        print(f"heads from {args.heads_from}; necks explain", {k: round(v, 2) for k, v in explained.items()})


def _all_weights(path: Path, name: str) -> dict[str, Tensor]:
    """Return the weights of a bundle's folder or of a run's weights.pt.

    Raises InputError if they belong to another network.
    """
    if path.is_file():
        return load_checkpoint(path, name).state_dict()
    loaded = load_bundle_network(Bundle.load(path).folder)
    if loaded.spec.name != name:
        raise InputError(f"bundle {path} contains {loaded.spec.name}; give a bundle of {name}")
    return loaded.state_dict()
