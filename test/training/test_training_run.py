"""A real run on a little material: it learns, stops, goes on where it stopped, and leaves what it says."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_helpers import run_training

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import default_bundle
from training import checkpoints
from training import train as module
from training.__main__ import main
from training.clips import ClipSource
from training.hardness import EASY
from training.journal import Journal
from training.mixture import Mixture
from training.schedule import parse_stages
from training.train import TrainingOptions, new_network, train
from training.unroll import unroll
from training.validation import stack

STEPS = 4
STAGES = "0:2:2:frozen,0.5:3:1:all"
"""The stage changes in the middle of the run."""
THREADS = 2
STOPPED_AFTER = 3
SEED = 5
SHIPPED = default_bundle().folder


def say_nothing(step: int, summary: str) -> None:
    pass


def fresh_network():
    """The same random weights every time."""
    torch.manual_seed(99)
    return new_network()


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "weights.pt", weights_only=True)["model"]


@pytest.fixture(scope="module")
def options(archive, tmp_path_factory) -> TrainingOptions:
    """Of a whole run of a few steps."""
    return TrainingOptions(
        material=archive,
        out=tmp_path_factory.mktemp("runs") / "whole",
        steps=STEPS,
        stages=parse_stages(STAGES),
        seed=SEED,
        validate_every=2,
        validation_clips=2,
        workers=0,
        threads=THREADS,
    )


@pytest.fixture(scope="module")
def impatient():
    """Reports and checkpoints after every step instead of every so many seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "REPORT_S", -1.0)
        patch.setattr(module, "CHECKPOINT_S", -1.0)
        yield


@pytest.fixture
def unplotted(monkeypatch):
    """A plot takes longer than a step of training: those of the uninterrupted, the resumed and the command
    line's run are enough."""
    monkeypatch.setattr(Journal, "plot", lambda _: None)


@pytest.fixture(scope="module")
def whole_run(options, impatient) -> Path:
    """The folder of a run that nothing interrupted."""
    train(options, fresh_network(), False, say_nothing)
    return options.out


@pytest.fixture
def stopped_run(options, impatient, tmp_path) -> Path:
    """The folder of a run that was stopped after a checkpoint."""

    def stop(step: int, summary: str) -> None:
        if step == STOPPED_AFTER:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(replace(options, out=tmp_path / "stopped"), fresh_network(), False, stop)
    return tmp_path / "stopped"


def arguments(folder: Path, archive: Path, *more: object) -> list[str]:
    """Of the command line that means the same options."""
    given = {
        "material": archive, "out": folder, "steps": STEPS, "stages": STAGES, "seed": SEED, "threads": THREADS
    }  # fmt: skip
    return [
        "train",
        *(str(x) for name, value in given.items() for x in (f"--{name}", value)),
        *map(str, more),
    ]


def complaint(capsys, *given: object) -> str:
    """Run the command, expect exit code 2 and one line on stderr; returns the line."""
    try:
        code = main([str(argument) for argument in given])
    except SystemExit as stop:  # argparse
        code = stop.code
    assert code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


# Learning


@pytest.mark.slow
def test_a_few_steps_lower_the_loss(archive, tmp_path):
    source = ClipSource(module.load_material(archive), Mixture(), 192)
    clips = stack([source.clip(SEED, index, 2) for index in range(4)])
    options = TrainingOptions(
        archive, tmp_path, steps=12, stages=parse_stages("0:2:4:frozen"), rate=0.05, seed=SEED,
        validation_clips=1, workers=0, threads=THREADS, hardness=EASY,
    )  # fmt: skip
    network = fresh_network()
    with torch.inference_mode():
        before = unroll(network.eval(), clips).total
    train(options, network, False, say_nothing)
    with torch.inference_mode():
        after = unroll(network.eval(), clips).total
    assert after < 0.75 * before


@pytest.mark.parametrize(("stage", "first"), [("frozen", 8), ("top", 5), ("trunk", 4), ("all", 0)])
def test_a_stage_says_from_where_on_the_trunk_learns(stage, first, options, tmp_path, unplotted):
    network = fresh_network()
    before = [p.clone() for p in _first_weights(network)]
    once = replace(options, out=tmp_path, steps=1, stages=parse_stages(f"0:2:1:{stage}"), validation_clips=1)
    train(once, network, False, say_nothing)
    moved = [not torch.equal(a, b) for a, b in zip(before, _first_weights(network), strict=True)]
    assert moved == [False] * first + [True] * (8 - first)


def _first_weights(network) -> list[torch.Tensor]:
    """One of the stem and one of each of the seven stages."""
    encoder = network.image_encoder
    return [encoder.stem.weight, *(stage[0].depthwise.weight for stage in encoder.stages)]


# Stopping and going on


def test_a_resumed_run_ends_with_exactly_the_weights_of_an_uninterrupted_one(whole_run, stopped_run, options):
    assert not _equal(weights_of(stopped_run), weights_of(whole_run))
    train(replace(options, out=stopped_run), new_network(), True, say_nothing)
    assert _equal(weights_of(stopped_run), weights_of(whole_run))
    resumed, whole = (checkpoints.load(folder / "resume.pt") for folder in (stopped_run, whole_run))
    assert _equal(resumed["model"], whole["model"])
    assert (resumed["step"], resumed["clips"]) == (whole["step"], whole["clips"]) == (4, 2 + 2 + 1 + 1)


@pytest.mark.slow
def test_the_command_line_resumes_with_workers_to_the_same_weights(whole_run, stopped_run, archive):
    done = run_training(*arguments(stopped_run, archive, "--resume", "--workers", 1))
    assert done.returncode == 0, done.stderr
    assert str(stopped_run) in done.stdout
    assert _equal(weights_of(stopped_run), weights_of(whole_run))
    log = [json.loads(line) for line in (stopped_run / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == STEPS


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


# Limited by time


@pytest.fixture
def timed(options, impatient, unplotted, tmp_path, monkeypatch) -> TrainingOptions:
    """Of a run of an hour on a clock that advances by fifteen minutes whenever it is read, once per step."""
    clock = itertools.count(0, 900)
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    return replace(options, out=tmp_path / "timed", hours=1.0, steps=1, validate_every=3)


def test_a_resumed_run_counts_the_seconds_already_spent(timed):
    def stop(step: int, summary: str) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(timed, fresh_network(), False, stop)
    assert checkpoints.load(timed.out / "resume.pt")["seconds"] == 2700
    train(timed, fresh_network(), True, say_nothing)
    ended = checkpoints.load(timed.out / "resume.pt")
    assert (ended["step"], ended["seconds"]) == (4, 3600)


def test_the_command_line_ends_a_run_after_its_hours(archive, tmp_path, monkeypatch):
    """Validated on one of the 64 clips that the command line takes."""
    some = module.validation_clips
    monkeypatch.setattr(module, "validation_clips", lambda source, count: some(source, min(count, 1)))
    line = arguments(tmp_path / "run", archive, "--hours", 1e-6, "--workers", 0, "--validate-every", 100)
    assert main([*without_steps(line), "--continue-from", str(SHIPPED)]) == 0
    assert checkpoints.load(tmp_path / "run" / "resume.pt")["step"] == 1


# What it leaves


def test_the_log_has_losses_and_validation(whole_run):
    lines = [json.loads(line) for line in (whole_run / "log.jsonl").read_text().splitlines()]
    training = [line for line in lines if line["kind"] == "train"]
    validation = [line for line in lines if line["kind"] == "validation"]
    assert [line["step"] for line in training] == [1, 2, 3, 4]
    assert [line["clips"] for line in training] == [2, 4, 5, 6]
    assert [line["step"] for line in validation] == [2, 4]
    for line in training:
        assert all(np.isfinite(line[name]) for name in ("loss", "mask", "iou", "presence", "overlap"))
    for line in validation:
        assert 0 <= line["overlap"] <= 1
        assert 0 <= line["balanced_accuracy"] <= 1


def test_the_recipe_tells_seed_options_and_versions(whole_run, archive):
    recipe = json.loads((whole_run / "recipe.json").read_text())
    assert (recipe["seed"], recipe["steps"], recipe["open_data_only"]) == (SEED, STEPS, False)
    assert recipe["material"] == str(archive)
    assert recipe["stages"][1] == {"start": 0.5, "frames": 3, "clips": 1, "first_learning": 0}
    assert recipe["hardness"]["shadows"] > 0
    assert recipe["mixture"] == {"composite": 0.45, "footage": 0.32, "photograph": 0.23}
    assert recipe["versions"]["torch"] == torch.__version__
    assert set(recipe["versions"]) == {"python", "torch", "numpy", "opencv", "onnxruntime"}


def test_the_weights_are_the_running_average_and_a_matter_of_the_seed(options, tmp_path, unplotted):
    stored = []
    for seed in (1, 2):
        network = fresh_network()
        before = {name: value.clone() for name, value in network.named_parameters()}
        once = replace(options, out=tmp_path / str(seed), steps=1, seed=seed, validation_clips=1)
        train(once, network, False, say_nothing)
        stored.append(weights_of(once.out))
        now = dict(network.named_parameters())
        for name in ("mask_decoder.tokens", "memory_encoder.out.weight"):
            expected = before[name].lerp(now[name], 19 / 21)  # after one step little is kept of the start
            assert not torch.equal(before[name], now[name])
            assert torch.allclose(stored[-1][name], expected, atol=1e-7)
    assert not _equal(*stored)


# The command line


def without_steps(line: list[str]) -> list[str]:
    at = line.index("--steps")
    return line[:at] + line[at + 2 :]


def refused_run(*change: object) -> Callable[[Path, Path], list[str]]:
    """A command line with these options added, the last of a name counts."""
    return lambda folder, archive: arguments(folder / "run", archive, *change)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (refused_run("--stages", "0:2:16"), ["'0:2:16'"]),
        (refused_run("--mixture", "0.5,0.5"), ["'0.5,0.5'", "0.45,0.32,0.23"]),
        *(
            (refused_run("--mixture", given), [repr(given)])
            for given in ("0,0,0", "1,-1,1", "1,nan,1", "1,1,1,1")
        ),
        *(
            (refused_run("--open-data-only", option, SHIPPED), [str(SHIPPED), "--open-data-only"])
            for option in ("--continue-from", "--heads-from")
        ),
        (refused_run("--material", "/nowhere/material.zip"), ["/nowhere/material.zip", "training data"]),
        (refused_run("--resume"), ["resume.pt", "without --resume"]),
        (refused_run("--continue-from", "/nowhere/bundle"), ["/nowhere/bundle"]),
        (refused_run("--steps", "0"), ["steps", "0"]),
        (refused_run("--steps", "many"), ["steps", "many"]),
        (refused_run("--hours", "1"), ["--hours", "--steps"]),
        (lambda *where: without_steps(refused_run("--hours", "0")(*where)), ["hours", "0"]),
        (lambda *where: without_steps(refused_run("--hours", "nan")(*where)), ["hours", "nan"]),
        (refused_run("--seed", "-1"), ["seed", "-1"]),
        (refused_run("--workers", "-1"), ["workers", "-1"]),
        (refused_run("--threads", "-2"), ["threads", "-2"]),
        (refused_run("--rate", "nan"), ["rate", "nan"]),
        (refused_run("--trunk-rate", "-0.1"), ["trunk", "-0.1"]),
        (refused_run("--memory-faults", "1.5"), ["memory_faults", "1.5"]),
        (refused_run("--device", "abacus"), ["device", "abacus"]),
        (lambda folder, archive: ["data", str(folder)], ["no folder synthetic"]),
        (lambda folder, archive: ["export", "--run", str(folder)], ["is not a training run"]),
    ],
)
def test_bad_options_end_in_one_line_and_exit_code_2(given, words, archive, tmp_path, capsys):
    line = complaint(capsys, *given(tmp_path, archive))
    for word in words:
        assert word in line


class _Harm:
    """Pickled, it is a command to be run when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"x" * 99),
        lambda path: torch.save({"optimizer": _Harm(path.with_name("trace"))}, path),
    ],
    ids=["beginning", "half", "empty", "text", "code"],
)
def test_a_damaged_checkpoint_is_refused_in_one_line_and_runs_no_code(damage, whole_run, tmp_path):
    path = Path(shutil.copy(whole_run / "resume.pt", tmp_path))
    damage(path)
    with pytest.raises(InputError, match="can't be read") as refused:
        checkpoints.load(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_save_leaves_the_last_whole_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "resume.pt"
    checkpoints.save(path, {"optimizer": 1})

    def break_off(content: object, partial: Path) -> None:
        partial.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", break_off)
    with pytest.raises(OSError, match="disk full"):
        checkpoints.save(path, {"optimizer": 2})
    assert checkpoints.load(path) == {"optimizer": 1}
