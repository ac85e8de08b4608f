"""CompactTAM's own rules: three prompt slots, the drawn box, and what goes into memory."""

from __future__ import annotations

import pytest
import torch
from export_helpers import compact_network
from hypothesis import given, settings
from hypothesis import strategies as st

SIDE = 192
NETWORK = compact_network().requires_grad_(False)


@pytest.fixture(scope="module")
def net():
    return NETWORK


def prompt(net, points, labels, mask=None, features=None):
    features = torch.zeros(1, 128, 12, 12) if features is None else features
    nothing = torch.zeros(1, 1, SIDE, SIDE)
    has_mask = torch.tensor([float(mask is not None)])
    points, labels = torch.tensor([points], dtype=torch.float32), torch.tensor([labels])
    return net.encode_prompt(features, points, labels, nothing if mask is None else mask, has_mask)


def remember(net, logits, *, present=1.0, prompted=0.0, raster=None):
    features = torch.randn(1, 128, 12, 12, generator=torch.Generator().manual_seed(1))
    pointer = torch.ones(1, 128)
    flags = torch.tensor([present]), torch.tensor([prompted])
    return net.encode_memory(features, logits, *flags, pointer, raster)


corner = st.floats(-20.0, 210.0, width=32)


@settings(max_examples=40, deadline=None)
@given(corner, corner, corner, corner)
def test_the_drawn_box_covers_each_cell_by_its_share(x0, y0, x1, y1):
    left, right, top, bottom = min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)
    raster = prompt(NETWORK, [[left, top], [right, bottom]], [2, 3])["prompt_raster"]
    inside = [max(0.0, min(high, SIDE) - max(low, 0.0)) for low, high in ((left, right), (top, bottom))]
    assert raster.shape == (1, 1, 48, 48)
    assert 0.0 <= float(raster.min()) <= float(raster.max()) <= 1.0 + 1e-6
    assert float(raster.sum()) * 16 == pytest.approx(inside[0] * inside[1], rel=1e-3, abs=0.05)


def test_a_cell_half_covered_is_half_drawn(net):
    raster = prompt(net, [[8.0, 16.0], [14.0, 24.0]], [2, 3])["prompt_raster"][0, 0]
    assert raster[4:6, 2:4].tolist() == [[1.0, 0.5], [1.0, 0.5]]
    assert float(raster.sum()) == 3.0


@pytest.mark.parametrize(
    ("points", "labels"),
    [([[90.0, 80.0]], [1]), ([[90.0, 80.0], [10.0, 20.0]], [1, 0]), ([[0.0, 0.0]], [-1])],
)
def test_without_a_box_nothing_is_drawn(net, points, labels):
    assert float(prompt(net, points, labels)["prompt_raster"].abs().max()) == 0.0


def test_there_are_three_prompt_slots_however_many_points(net):
    points = [[60.0, 50.0], [120.0, 130.0], [90.0, 90.0], [30.0, 30.0], [100.0, 100.0]]
    labels = [2, 3, 1, 0, 1]
    three = prompt(net, points[:3], labels[:3])["sparse"]
    assert three.shape == (1, 2 * (6 + 3), 128), "with the decoder's own six, before and after attention"
    assert torch.equal(prompt(net, points, labels)["sparse"], three)


def test_padding_points_change_nothing(net):
    click, padded = prompt(net, [[90.0, 80.0]], [1]), prompt(net, [[90.0, 80.0], [5.0, 9.0]], [1, -1])
    for name in click:
        assert torch.equal(click[name], padded[name]), name


def test_a_tracked_frames_prompt_is_constant_and_not_a_prompt(net):
    features = torch.randn(1, 128, 12, 12)
    tracked, elsewhere = prompt(net, [[0.0, 0.0]], [-1]), prompt(net, [[7.0, 3.0]], [-1], features=features)
    assert torch.equal(tracked["sparse"], elsewhere["sparse"])
    assert torch.equal(tracked["dense"], elsewhere["dense"])
    assert torch.equal(tracked["dense"], net.prompt_encoder.no_dense.expand(1, -1, 12, 12))


@pytest.mark.parametrize(("points", "labels", "masked"), [([[90.0, 80.0]], [1], 0), ([[0.0, 0.0]], [-1], 1)])
def test_a_click_and_a_mask_get_a_dense_prompt(net, points, labels, masked):
    mask = torch.ones(1, 1, SIDE, SIDE) if masked else None
    dense = prompt(net, points, labels, mask)["dense"]
    assert float((dense - net.prompt_encoder.no_dense).abs().max()) > 1e-2


def test_a_mask_counts_only_when_it_is_announced(net):
    mask = torch.ones(1, 1, SIDE, SIDE)
    points, labels = torch.tensor([[[90.0, 80.0]]]), torch.tensor([[1]])
    silent = net.encode_prompt(torch.zeros(1, 128, 12, 12), points, labels, mask, torch.zeros(1))
    assert torch.equal(silent["dense"], prompt(net, [[90.0, 80.0]], [1])["dense"])


def test_tracked_frames_remember_soft_masks_prompted_ones_hard_masks(net):
    weak, strong = torch.full((1, 1, 48, 48), 0.3), torch.full((1, 1, 48, 48), 9.0)
    assert torch.equal(remember(net, weak, prompted=1.0)[0], remember(net, strong, prompted=1.0)[0])
    assert not torch.allclose(remember(net, weak)[0], remember(net, strong)[0], atol=1e-3)


def test_the_drawn_box_enters_the_memory_of_prompted_frames_only(net):
    logits, raster = torch.full((1, 1, 48, 48), -3.0), torch.rand(1, 1, 48, 48)
    assert torch.equal(remember(net, logits, raster=raster)[0], remember(net, logits)[0])
    with_box = remember(net, logits, prompted=1.0, raster=raster)[0]
    assert not torch.allclose(with_box, remember(net, logits, prompted=1.0)[0], atol=1e-3)


def test_an_absent_target_leaves_an_empty_mask_and_no_pointer(net):
    seen, empty = torch.full((1, 1, 48, 48), 9.0), torch.full((1, 1, 48, 48), -1024.0)
    memory, pointer = remember(net, seen, present=0.0)
    assert torch.equal(memory, remember(net, empty)[0])
    assert torch.equal(pointer, net.no_pointer)
    assert torch.equal(remember(net, seen)[1], torch.ones(1, 128))
