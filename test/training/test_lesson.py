"""A backbone as a teacher beside tracking: what is compared, what learns from it, what is kept."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_helpers import one_convolution

from efftam_ros.core.errors import InputError
from training import checkpoints
from training import train as module
from training.journal import Journal
from training.lesson import SHARE, Backbone, Lesson
from training.schedule import parse_stages
from training.train import TrainingOptions, new_network, train
from training.unroll import normalised

SIDE = 192


def say_nothing(step: int, summary: str) -> None:
    pass


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Path:
    return one_convolution(tmp_path_factory.mktemp("teacher") / "backbone.onnx")


def images(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randint(0, 256, (count, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)


@pytest.fixture
def taught(backbone):
    """A network and its lesson."""
    torch.manual_seed(7)
    network = new_network("compact_192_narrow")
    lesson = Lesson(network, Backbone(backbone), images(8))
    lesson.attend(network)
    return network, lesson


def test_the_trunk_and_the_map_learn_from_it_and_the_heads_do_not(taught):
    network, lesson = taught
    network.image_encoder(normalised(network, images(SHARE)))
    loss = lesson.loss()
    assert 0 < loss.item() < 2
    loss.backward()
    assert lesson.map.weight.grad.abs().max() > 0
    stages = network.image_encoder.stages
    assert all(p.grad is not None for p in stages[: network.image_encoder.taken[2] + 1].parameters())
    assert network.image_encoder.neck16.weight.grad is None


@pytest.fixture
def options(archive, backbone, tmp_path, monkeypatch) -> TrainingOptions:
    """Of a run that draws no plots, each of which takes longer than a step of it."""
    monkeypatch.setattr(Journal, "plot", lambda _: None)
    return TrainingOptions(
        material=archive,
        out=tmp_path / "run",
        config="compact_192_narrow",
        steps=3,
        stages=parse_stages("0:2:2:all,0.6:3:2:all:closed"),
        backbone=backbone,
        validate_every=3,
        validation_clips=2,
        workers=0,
        threads=2,
    )


def test_a_run_with_a_backbone_resumes_with_the_same_map(options, monkeypatch):
    monkeypatch.setattr(module, "CHECKPOINT_S", -1.0)
    network = new_network(options.config)
    first = copy.deepcopy(network)

    def stop(step: int, summary: str) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(options, network, False, stop)
    stopped = checkpoints.load(options.out / "resume.pt")
    train(options, new_network(options.config), True, say_nothing)
    resumed = checkpoints.load(options.out / "resume.pt")
    whole = replace(options, out=options.out.with_name("whole"))
    train(whole, first, False, say_nothing)
    wanted = checkpoints.load(whole.out / "resume.pt")
    assert torch.equal(resumed["lesson"]["map.weight"], wanted["lesson"]["map.weight"])
    assert not torch.equal(stopped["lesson"]["map.weight"], wanted["lesson"]["map.weight"])
    exported = torch.load(options.out / "weights.pt", weights_only=True)["model"]
    assert not [name for name in exported if "map" in name.split(".") or "lesson" in name]


@pytest.mark.parametrize("begun_with", [True, False])
def test_a_run_resumes_only_as_it_was_begun(options, begun_with):
    without = replace(options, backbone=None, steps=1, validate_every=1)
    given = replace(options, steps=1, validate_every=1)
    begun, other = (given, without) if begun_with else (without, given)
    train(begun, new_network(options.config), False, say_nothing)
    with pytest.raises(InputError, match="backbone"):
        train(replace(other, steps=2), new_network(options.config), True, say_nothing)
