"""Memory attention in all its forms is one function: plain and pooled, free and fixed length, PyTorch and
ONNX."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the network needs torch: scripts/setup_env --with-tests")

import io
import math
import warnings

import numpy as np
import torch
from torch import Tensor

from efftam_workshop.model.efficienttam.configurations import Configuration, Pooling
from efftam_workshop.model.efficienttam.memory_attention import PooledKeys
from efftam_workshop.model.efficienttam.network import EfficientTAM

SIDE = 96
GRID, TOKENS = 6, 36
ROWS, SLOTS = 7, 16
UNUSED = -1e4

every_pooling = pytest.mark.parametrize("pooling", list(Pooling), ids=lambda p: p.value)


@pytest.fixture(scope="module")
def small(golden_state):
    """A network of 96 px with the golden weights, by its pooling."""

    def build(pooling: Pooling) -> EfficientTAM:
        network = EfficientTAM(Configuration("small", SIDE, 192, 3, pooling)).eval()
        network.load_state_dict(golden_state("ti"))
        return network

    return {pooling: build(pooling) for pooling in Pooling}


def memory(maps: int, pointers: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, maps, their rows (the prompt's, then the newest) and pointers."""
    generator = torch.Generator().manual_seed(100 * maps + pointers)
    features = torch.randn(1, 256, GRID, GRID, generator=generator)
    rows = torch.tensor([ROWS - 1, *range(maps - 2, -1, -1)])
    return (
        features,
        torch.randn(maps, TOKENS, 64, generator=generator),
        rows,
        torch.randn(pointers, 256, generator=generator),
    )


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=2e-5, rtol=0)


def test_the_order_of_maps_and_pointers_does_not_matter(small):
    network = small[Pooling.PLAIN]
    features, maps, rows, pointers = memory(5, 4)
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = network.attend(features, maps[order], rows[order], pointers.flip(0))
    close(shuffled, network.attend(features, maps, rows, pointers))


def test_the_temporal_row_of_a_map_matters(small):
    network = small[Pooling.PLAIN]
    features, maps, rows, pointers = memory(3, 3)
    moved = network.attend(features, maps, rows.flip(0), pointers)
    assert (moved - network.attend(features, maps, rows, pointers)).abs().max() > 1e-2


def test_pooled_networks_attend_to_a_single_map_unpooled(small):
    inputs = memory(1, 3)
    plain = small[Pooling.PLAIN].attend(*inputs)
    for pooling in (Pooling.POOLED_1, Pooling.POOLED_2):
        close(small[pooling].attend(*inputs), plain)


def test_pooled_networks_differ_from_two_maps_on(small):
    inputs = memory(2, 3)
    outputs = [small[pooling].attend(*inputs) for pooling in Pooling]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert (outputs[i] - outputs[j]).abs().max() > 1e-3


@pytest.mark.parametrize("pooling", [Pooling.POOLED_1, Pooling.POOLED_2])
def test_pooled_attention_is_the_published_formula(pooling):
    """Four keys of a square become their mean; ln 4 goes to its logit (form 1) or to each of its channels
    (form 2)."""
    grid, channels, maps, pointers = 4, 8, 3, 5
    tokens = maps * grid * grid
    q, keys, values = torch.randn(6, channels), *torch.randn(2, tokens + pointers, channels)
    squares = torch.nn.functional.avg_pool2d

    def pool(x: Tensor) -> Tensor:
        image = x[:tokens].reshape(maps, grid, grid, channels).permute(0, 3, 1, 2)
        return squares(image, 2).permute(0, 2, 3, 1).reshape(-1, channels)

    weight = 2 * math.log(2)
    if pooling is Pooling.POOLED_1:
        logits = torch.cat(
            [q @ pool(keys).T / math.sqrt(channels) + weight, q @ keys[tokens:].T / math.sqrt(channels)], 1
        )
    else:
        logits = q @ torch.cat([pool(keys) + weight, keys[tokens:]]).T / math.sqrt(channels)
    expected = logits.softmax(-1) @ torch.cat([pool(values), values[tokens:]])

    pooled = PooledKeys(torch.zeros(maps, grid * grid, channels), grid, pooling, choose=True)
    merged = pooled.merge(values, pooled.average(values))
    bias = pooled.bias(values, None)
    scores = q @ pooled.keys(keys).T / math.sqrt(channels) + (0 if bias is None else bias[0, 0])
    close(scores.softmax(-1) @ merged, expected)


def fixed_inputs(
    pooling: Pooling, maps: Tensor, rows: Tensor, pointers: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same memory laid out by row and slot, and the bias that leaves the empty places out."""
    laid_out, slots = torch.zeros(ROWS, TOKENS, 64), torch.zeros(SLOTS, 256)
    laid_out[rows], slots[: len(pointers)] = maps, pointers
    used = torch.zeros(ROWS, dtype=torch.bool)
    used[rows] = True
    used_pointers = torch.arange(SLOTS * 4) < 4 * len(pointers)
    if pooling is Pooling.PLAIN:
        keys = torch.cat([used.repeat_interleave(TOKENS), used_pointers])
    else:
        alone = len(maps) == 1
        unpooled = torch.full((TOKENS,), alone)
        keys = torch.cat([unpooled, used.repeat_interleave(TOKENS // 4) & (not alone), used_pointers])
    return laid_out, slots, torch.where(keys, 0.0, UNUSED).reshape(1, 1, 1, -1)


@every_pooling
@pytest.mark.parametrize(("maps", "pointers"), [(1, 1), (2, 2), (3, 7), (7, 16)])
def test_fixed_form_with_a_key_bias_equals_the_free_form(small, pooling, maps, pointers):
    features, stack, rows, tokens = memory(maps, pointers)
    laid_out, slots, key_bias = fixed_inputs(pooling, stack, rows, tokens)
    fixed = small[pooling].attend(features, laid_out, torch.arange(ROWS), slots, key_bias)
    close(fixed, small[pooling].attend(features, stack, rows, tokens))


@every_pooling
def test_a_traced_graph_decides_about_pooling_by_the_maps_it_is_given(small, pooling):
    """Traced with two maps, the ONNX graph must still attend to one map unpooled and to seven pooled."""
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    network = small[pooling]

    class Attend(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *inputs: Tensor) -> Tensor:
            return self.network.attend(*inputs)

    names = ["features", "maps", "rows", "pointers"]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", torch.jit.TracerWarning)
        torch.onnx.export(
            Attend().eval(),
            memory(2, 3),
            file,
            input_names=names,
            dynamic_axes={"maps": {0: "T"}, "rows": {0: "T"}, "pointers": {0: "P"}},
            opset_version=17,
            dynamo=False,
            do_constant_folding=False,
        )
    session = ort.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for maps, pointers in ((1, 1), (2, 3), (7, 16), (8, 17)):
        inputs = memory(min(maps, 7), pointers)
        if maps == 8:  # a second prompt gives an eighth map
            inputs = (
                inputs[0],
                torch.cat([inputs[1], inputs[1][:1] * 0.5]),
                torch.cat([inputs[2], inputs[2][:1]]),
                inputs[3],
            )
        (result,) = session.run(
            None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        )
        np.testing.assert_allclose(result, network.attend(*inputs).numpy(), atol=2e-5)
