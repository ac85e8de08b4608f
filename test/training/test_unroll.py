"""A training clip runs through the network as the tracker's frames do: same memory, same answers, and
gradients for everything that is to learn."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from export_helpers import compact_network
from hypothesis import given, settings
from hypothesis import strategies as st
from training_helpers import bright_material

from benchmarks.pytorch.torch_pipeline import TorchPipeline
from efftam_ros.core.contract import Look, Remembered
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.memory import MemoryBank, RankedFrames, Record
from efftam_ros.core.types import Image, MemoryPlan, Prompt
from training import unroll as module
from training.clips import Clip, ClipSource
from training.mixture import Mixture
from training.train import new_network
from training.unroll import MAX_RECENT, unroll
from training.validation import stack, validate, validation_clips

SIDE = 192
FRAMES = 6
LIMIT = 1e-4
OUTPUTS = ("masks", "ious", "presence", "pointers")


@pytest.fixture(scope="module")
def clips() -> dict[str, Clip]:
    """One clip of each kind of prompt; boxes lie inside the window, where the tracker would not clip them."""
    source = ClipSource(bright_material(), Mixture(), SIDE)
    found: dict[str, Clip] = {}
    for index in range(60):
        clip = source.clip(11, index, FRAMES)
        if clip.has_mask:
            kind, clip = "mask", with_whole_cells(clip)
        elif 2 in clip.labels:
            kind = "box"
            if clip.points.min() < 0 or clip.points.max() > SIDE:
                continue
        else:
            kind = "click"
        found.setdefault(kind, clip)
    return {kind: found[kind] for kind in ("box", "click", "mask")}


def with_whole_cells(clip: Clip) -> Clip:
    """With a prompt of whole mask cells: the product's antialiasing and an area average agree on those."""
    cells = (clip.masks[0] > 127).to(torch.uint8)
    masks = clip.masks.clone()
    masks[0] = 255 * cells
    return clip._replace(masks=masks, prompt_mask=cells.repeat_interleave(4, 0).repeat_interleave(4, 1))


def shortened(clip: Clip, frames: int) -> Clip:
    per_frame = {name: getattr(clip, name)[:frames] for name in ("images", "masks", "valid", "present")}
    return clip._replace(**per_frame)


@pytest.fixture(scope="module")
def network(clips):
    """Random weights, so that every difference shows; some frames are taken for empty, none narrowly."""
    net = compact_network().requires_grad_(False)
    torch.manual_seed(4)
    for part in (net.image_encoder.stem, *net.image_encoder.stages.modules()):
        if isinstance(part, torch.nn.Conv2d):  # by default so weak that all pictures look alike
            torch.nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            torch.nn.init.zeros_(part.bias)
    net.mask_decoder.iou_head[-1].bias[0] += 9  # the single answer, which is none of the alternatives
    last = net.mask_decoder.presence_head[-1]
    last.weight.mul_(20)
    with torch.inference_mode():
        says = torch.cat([torch.stack(unroll(net, stack([clip])).says_present) for clip in clips.values()])
    middle = says.flatten().sort().values[len(says) // 2 - 2 : len(says) // 2 + 3]
    widest = int(middle.diff().argmax())
    last.bias -= middle[widest : widest + 2].mean()
    return net


@contextmanager
def decoded(network) -> Iterator[list[tuple[torch.Tensor, ...]]]:
    """What the mask decoder answers meanwhile: masks, IoUs, presence and pointers of every frame."""
    seen: list[tuple[torch.Tensor, ...]] = []
    hook = network.mask_decoder.register_forward_hook(
        lambda _, inputs, outputs: seen.append(tuple(x.detach() for x in outputs))
    )
    try:
        yield seen
    finally:
        hook.remove()


def prompt_of(clip: Clip) -> Prompt:
    """The clip's prompt as the tracker takes it."""
    if clip.has_mask:
        return Prompt(mask=clip.prompt_mask.numpy().astype(bool))
    points = [tuple(point) for point in clip.points.tolist()]
    if 1 in clip.labels:
        return Prompt(points=(points[0],), labels=(1,))
    return Prompt(box=Box.from_edges(*points[0], *points[1]))


def run_product(network, clip: Clip) -> list[bool]:
    """The clip frame by frame through the eager pipeline and the tracker's memory bank. Returns whether each
    frame was remembered as present."""
    pipeline, spec = TorchPipeline(network, threads=torch.get_num_threads()), network.spec
    rule = RankedFrames(spec.temporal_rows, MAX_RECENT, spec.max_maps, 1 + MAX_RECENT)
    bank = MemoryBank(rule, pipeline.spec.slots)
    remembered = []
    for frame, picture in enumerate(clip.images):
        rgb = np.ascontiguousarray(picture.permute(1, 2, 0).numpy())
        plan, prompt = (bank.plan_of(frame), None) if frame else (MemoryPlan(), prompt_of(clip))
        look = Look(0, (View.full(SIDE, SIDE, SIDE),), plan, prompt)
        (candidates,) = pipeline.look(Image.from_array(rgb, "rgb8"), [look]).candidates(0)
        choice = int(candidates.ious.argmax())
        present = frame == 0 or candidates.presence_logit > 0
        slot = bank.add(Record(frame, frame == 0, float(candidates.ious[choice]), candidates.presence_logit))
        pipeline.remember([Remembered(0, choice, slot, present)])
        remembered.append(present)
    pipeline.close()
    return remembered


# The tracker's way


@pytest.mark.parametrize("kind", ["box", "click", "mask"])
def test_unrolling_answers_what_the_product_answers(network, clips, kind):
    with torch.inference_mode(), decoded(network) as trained:
        out = unroll(network, stack([clips[kind]]))
    with decoded(network) as product:
        remembered = run_product(network, clips[kind])
    assert len(trained) == len(product) == FRAMES
    for frame, (ours, theirs) in enumerate(zip(trained, product, strict=True)):
        for name, a, b in zip(OUTPUTS, ours, theirs, strict=True):
            assert torch.allclose(a, b, atol=LIMIT), f"{name} of frame {frame}"
    assert remembered[1:] == [bool(says > 0) for says in out.says_present[1:]]


def test_a_batch_gives_what_its_clips_give_one_by_one(network, clips):
    with torch.inference_mode():
        alone = [unroll(network, stack([clip])) for clip in clips.values()]
        together = unroll(network, stack(list(clips.values())))
    for name in ("says_present", "overlap", "present"):
        one_by_one = torch.cat([torch.stack(getattr(out, name)) for out in alone], 1)
        assert torch.allclose(torch.stack(getattr(together, name)), one_by_one, atol=LIMIT), name
    for part in ("mask", "iou", "presence"):
        for frame in range(FRAMES):
            mean = torch.stack([getattr(out.losses[frame], part) for out in alone]).mean()
            assert torch.allclose(getattr(together.losses[frame], part), mean, atol=LIMIT), part
    assert torch.allclose(together.total, torch.stack([out.total for out in alone]).mean(), atol=LIMIT)


def test_the_overlap_is_that_of_the_chosen_mask(network, clips):
    batch = stack([clips["click"]])
    with torch.inference_mode(), decoded(network) as answers:
        out = unroll(network, batch)
    for frame, (masks, ious, *_) in enumerate(answers):
        drawn = masks[0, 1 + int(ious[0, 1:].argmax())] > 0
        known, wanted = batch.valid[0, frame], batch.masks[0, frame] > 127
        union = ((drawn | wanted) & known).sum().clamp(min=1)
        assert out.overlap[frame].item() == pytest.approx(((drawn & wanted & known).sum() / union).item())


def test_a_given_mask_is_remembered_as_it_was_given(network, clips, monkeypatch):
    stored = []
    encode = network.encode_memory
    monkeypatch.setattr(network, "encode_memory", lambda *a: stored.append(a) or encode(*a))
    with torch.inference_mode():
        unroll(network, stack([clips["mask"]]))
    _, logits, present, binarize, _, raster = stored[0]
    assert torch.equal(logits[0, 0] > 0, clips["mask"].masks[0] > 127)
    assert (present.item(), binarize.item()) == (1, 1)
    assert raster is not None
    assert all(call[3].item() == 0 and call[5] is None for call in stored[1:])


# Training alone


def test_memory_faults_change_what_later_frames_remember_and_not_what_a_frame_shows(
    network, clips, monkeypatch
):
    batch = stack([clips["box"]])
    stored: list[torch.Tensor] = []
    encode = network.encode_memory
    monkeypatch.setattr(network, "encode_memory", lambda *a: stored.append(a[1]) or encode(*a))
    with torch.inference_mode():
        sound = unroll(network, batch, np.random.default_rng(4))
        faulty = unroll(network, batch, np.random.default_rng(4), memory_faults=1.0)
    right, wrong = stored[:FRAMES], stored[FRAMES:]
    differ = [not torch.equal(a, b) for a, b in zip(right, wrong, strict=True)]
    assert not differ[0]
    assert any(differ)
    first = differ.index(True)
    assert torch.equal(sound.overlap[first], faulty.overlap[first])


def test_dropping_and_rows_are_a_matter_of_the_random_state(network, clips):
    batch = stack([shortened(clips["box"], 5)])

    def last(seed: int | None) -> torch.Tensor:
        with torch.inference_mode():
            rng = None if seed is None else np.random.default_rng(seed)
            return torch.stack(unroll(network, batch, rng).says_present)

    assert torch.equal(last(5), last(5))
    assert not torch.equal(last(5), last(6))
    assert torch.equal(last(5)[0], last(None)[0])  # the prompted frame has nothing to drop


@settings(max_examples=100, deadline=None)
@given(frame=st.integers(1, 12), seed=st.none() | st.integers(0, 10_000))
def test_the_prompted_frame_is_always_attended_to_and_recent_ones_newest_first(frame, seed):
    used, ages = module._recent(frame, None if seed is None else np.random.default_rng(seed))
    assert used[0] == 0
    assert used[1:] == sorted(set(used[1:]), reverse=True)
    assert all(0 < past < frame for past in used[1:])
    assert ages == list(range(len(used) - 1))
    assert len(ages) <= MAX_RECENT
    if seed is None:
        assert used[1:] == list(range(frame - 1, 0, -1))[:MAX_RECENT]


def test_gradients_reach_everything(clips):
    network = new_network()
    batch = stack([shortened(clip, 4) for clip in clips.values()])
    last = network.mask_decoder.presence_head[-1]
    with torch.no_grad():
        network.memory_attention.row_embedding.mul_(20)
        for part in network.image_encoder.modules():
            if isinstance(part, torch.nn.Conv2d):  # by default so weak that little passes a deep trunk
                torch.nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    for bias in (9.0, -9.0):  # pointers of present targets, and the one that stands for none
        torch.nn.init.constant_(last.bias, bias)
        unroll(network, batch, np.random.default_rng(0)).total.backward()
    for part, parameter in network.named_parameters():
        assert parameter.grad is not None, part
        assert parameter.grad.abs().max() > 0, part


# Validation


def test_validation_looks_at_the_same_clips_every_time():
    source = ClipSource(bright_material(), Mixture(), SIDE)
    one, other = validation_clips(source, 3), validation_clips(source, 3)
    assert [len(batch.present) for batch in one] == [3]
    assert all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))


@pytest.mark.parametrize(("bias", "recall"), [(1e4, 1.0), (-1e4, 0.0)])
def test_a_target_that_is_denied_overlaps_nothing_and_half_of_a_coin_is_right(network, clips, bias, recall):
    batch = stack([shortened(clip, 4) for clip in clips.values()])
    batch.present[1, 3] = 0  # one frame without the target at least
    sure = copy.deepcopy(network)
    torch.nn.init.constant_(sure.mask_decoder.presence_head[-1].bias, bias)
    score = validate(sure, [batch])
    assert score.balanced_accuracy == pytest.approx(0.5)
    assert (score.overlap > 0) == bool(recall)
    assert score.loss > 1
