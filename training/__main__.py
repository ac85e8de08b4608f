"""`python -m training COMMAND`: trains and evaluates the networks that ship; ``--help`` lists commands."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING

from efftam_ros.core.errors import InputError
from efftam_ros.tools.cli import Parser

if TYPE_CHECKING:
    from torch import Tensor

    from efftam_workshop.model.compact.network import CompactTAM

MATERIAL = Path("runs/material.zip")
RUN = Path("runs/compact_192")
SHIPPED = Path("efftam_ros/models/compact_192")
WARM_START_CLIPS = 150


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(
        prog="python -m training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_collect(commands.add_parser("collect", help="bring back footage that public repositories bundle"))
    _add_label(commands.add_parser("label", help="label footage that has no labels"))
    _add_data(commands.add_parser("data", help="pack cut-outs, photographs and footage into one file"))
    _add_train(commands.add_parser("train", help="train, or resume, and write checkpoints, log and plot"))
    _add_evaluate(
        commands.add_parser("evaluate", help="evaluate a bundle on held-out clips, scenes and sequences")
    )
    _add_disappearances(
        commands.add_parser(
            "disappearances", help="evaluate reacquisition after a disappearance on real clips"
        )
    )
    _add_export(commands.add_parser("export", help="write a run's weights as a bundle"))
    _add_identity(commands.add_parser("identity", help="the network that tells individuals apart"))
    args = parser.parse_args(arguments)
    try:
        return int(args.run(args))
    except InputError as refused:
        print(f"{parser.prog}: {refused}", file=sys.stderr)
        return 2


def _add_collect(parser: argparse.ArgumentParser) -> None:
    from training import collect

    collect.add_arguments(parser)
    parser.set_defaults(run=collect.run)


def _add_label(parser: argparse.ArgumentParser) -> None:
    from training import label

    label.add_arguments(parser)
    parser.set_defaults(run=label.run)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Pack the folders synthetic, real_masks, sequences and sequences_train into one file."
    )
    parser.add_argument("source", type=Path, help="the folder that holds them")
    parser.add_argument("--out", type=Path, default=MATERIAL, help="default %(default)s")
    parser.set_defaults(run=_data)


def _data(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from training.material import pack_material

    with tqdm(desc="packing", unit="item", delay=0.1) as bar:  # errors are reported in one line
        counts = pack_material(args.source, args.out, bar.update)
    for kind, count in sorted(counts.items()):
        print(f"{kind:24}{count:6}")
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")
    return 0


def _add_train(parser: argparse.ArgumentParser) -> None:
    from training.mixture import Mixture
    from training.schedule import DEFAULT_STAGES

    parser.add_argument(
        "--material", type=Path, default=MATERIAL, help="from the command data; default %(default)s"
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
    parser.add_argument("--trunk-rate", type=float, default=1.5e-4, help="of the trunk; default %(default)s")
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
        help="share of the clips that remember something wrong for a few frames, 0 to 1; default %(default)s",
    )
    parser.add_argument(
        "--open-data-only", action="store_true", help="leave out data licensed for research use only"
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="processes that compose clips; default %(default)s"
    )
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; default: its own choice")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; default %(default)s")
    parser.set_defaults(run=_train)


def _train(args: argparse.Namespace) -> int:
    from training.hardness import EASY, HARD
    from training.mixture import parse_mixture
    from training.schedule import parse_stages
    from training.train import TrainingOptions, new_network, train

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
    """A progress bar, as a function that takes the number of steps done and the latest figures."""
    from tqdm import tqdm

    # Created at the first step, so that an error before it is reported on a single line.
    with tqdm(total=total, unit="step", dynamic_ncols=True, mininterval=2, delay=0.1) as bar:

        def progress(step: int, summary: str) -> None:
            bar.set_postfix_str(summary, refresh=False)
            bar.update(step - bar.n)

        yield progress


def _start(network: CompactTAM, args: argparse.Namespace) -> None:
    """Load the initial weights as requested by the options, and print where they come from."""
    from efftam_ros.runtime.bundle import Bundle
    from training.backbone import load_backbone, packaged_weights
    from training.ship import require_open
    from training.warm_start import warm_start

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
        from training.clips import ClipSource
        from training.material import load_material
        from training.mixture import Mixture

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
    """Weights of a bundle's folder or of a run's weights.pt. Raises InputError when they belong to another
    network."""
    from efftam_ros.runtime.bundle import Bundle
    from efftam_workshop.model.loading import load_bundle_network, load_checkpoint

    if path.is_file():
        return load_checkpoint(path, name).state_dict()
    loaded = load_bundle_network(Bundle.load(path).folder)
    if loaded.spec.name != name:
        raise InputError(f"bundle {path} is of {loaded.spec.name}; give one of {name}")
    return loaded.state_dict()


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    from training import evaluate

    evaluate.add_arguments(parser, MATERIAL)
    parser.set_defaults(run=evaluate.run)


def _add_disappearances(parser: argparse.ArgumentParser) -> None:
    from training.reacquisition import judge

    judge.add_arguments(parser)
    parser.set_defaults(run=judge.run)


def _add_identity(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, text in (
        ("data", "write crops of individuals seen several times, and whole images"),
        ("train", "train, or resume, and write checkpoints and a report"),
        ("judge", "tell right boxes from wrong ones on pictures that were held out"),
        ("export", "write a run's weights as the network that ships"),
    ):
        step = commands.add_parser(name, help=text)
        module = importlib.import_module(f"training.identity.{name}")
        module.add_arguments(step)
        step.set_defaults(run=module.run)


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run", dest="folder", type=Path, default=RUN, help="the run's folder; default %(default)s"
    )
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the bundle's folder; default %(default)s")
    parser.add_argument(
        "--mean-with",
        type=Path,
        metavar="WEIGHTS",
        help="export the mean of the run's weights and others: a bundle, or the weights.pt of another run",
    )
    parser.add_argument(
        "--share",
        type=float,
        default=0.5,
        metavar="S",
        help="share of the other weights in the mean, 0 to 1; default %(default)s",
    )
    parser.set_defaults(run=_export)


def _export(args: argparse.Namespace) -> int:
    from training.ship import ship

    size = ship(args.folder, args.out, args.mean_with, args.share)
    print(f"{args.out}: {size / 1e6:.1f} MB; python -m training evaluate says how good it is")
    return 0


if __name__ == "__main__":
    sys.exit(main())
