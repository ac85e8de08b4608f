"""The dynamic and the fixed form of the memory attention are one function, whatever the memory holds."""

from __future__ import annotations

import pytest
import torch
from support.tensors import laid_out_tensors, layout_of

from efftam_workshop.agreement.compare import UNUSED_KEY, key_bias
from efftam_workshop.export.onnx.graphs import key_count

LAST = 6
FILL_LEVELS = [
    ([LAST], 1),
    *(([LAST, *range(n)], p) for n, p in ((1, 2), (2, 3), (3, 9), (4, 15), (5, 16), (6, 16))),
]


def memory(spec, rows, pointers, seed=0):
    """Features, maps, rows and pointers with seeded content."""
    random = torch.Generator().manual_seed(seed)
    return {
        "features": torch.randn(1, spec.channels, spec.grid, spec.grid, generator=random),
        "maps": torch.randn(len(rows), spec.grid**2, spec.memory_channels, generator=random),
        "rows": torch.tensor(rows),
        "pointers": torch.randn(pointers, spec.channels, generator=random),
    }


def laid_out(spec, inputs):
    """The same memory as the fixed form takes it."""
    rows = inputs["rows"].tolist()
    fixed = laid_out_tensors(spec, rows, inputs["maps"], inputs["pointers"])
    return {"features": inputs["features"], **fixed}


@pytest.mark.parametrize("family", ["compact", "official", "pooled_1", "pooled_2"])
def test_both_forms_equal_the_network_at_every_fill_level(network, attention, family):
    net = network(family)
    dynamic, fixed = attention(family)
    for rows, pointers in FILL_LEVELS:
        inputs = memory(net.spec, rows, pointers)
        with torch.inference_mode():
            expected = net.attend(*inputs.values())
        case = f"{len(rows)} maps, {pointers} pointers"
        for form, got in (("dynamic", dynamic(inputs)), ("fixed", fixed(laid_out(net.spec, inputs)))):
            difference = float((got["conditioned"] - expected).abs().max())
            assert difference < 1e-5, f"{form}, {case}: {difference:.1e}"


@pytest.mark.parametrize("family", ["compact", "official"])
def test_unused_slots_may_hold_anything_finite(network, attention, family):
    spec = network(family).spec
    inputs = memory(spec, [LAST, 0], 3)
    clean = laid_out(spec, inputs)
    dirty = dict(clean, maps=clean["maps"] + 50.0 * (clean["maps"] == 0), pointers=clean["pointers"].clone())
    dirty["pointers"][3:] = -30.0
    fixed = attention(family)[1]
    torch.testing.assert_close(fixed(dirty)["conditioned"], fixed(clean)["conditioned"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["compact", "official", "pooled_1"])
def test_the_order_of_maps_is_free_their_rows_are_not(network, attention, family):
    spec = network(family).spec
    inputs = memory(spec, [LAST, 0, 1], 2)
    turned = dict(inputs, maps=inputs["maps"].flip(0), rows=inputs["rows"].flip(0))
    aged = dict(inputs, rows=torch.tensor([LAST, 1, 0]))
    dynamic = attention(family)[0]
    expected = dynamic(inputs)["conditioned"]
    torch.testing.assert_close(dynamic(turned)["conditioned"], expected, rtol=0, atol=1e-5)
    assert float((dynamic(aged)["conditioned"] - expected).abs().max()) > 1e-3


@pytest.mark.parametrize("family", ["pooled_1", "pooled_2"])
def test_a_pooled_network_pools_from_two_maps_on(network, attention, family):
    """With one map it is the plain network; two equal maps would weigh as one, if they were not pooled."""
    plain, pooled = attention("official")[0], attention(family)[0]
    spec = network(family).spec
    one, two = memory(spec, [LAST], 1), memory(spec, [LAST, 0], 1)
    torch.testing.assert_close(pooled(one)["conditioned"], plain(one)["conditioned"], rtol=0, atol=1e-5)
    assert float((pooled(two)["conditioned"] - plain(two)["conditioned"]).abs().max()) > 1e-3


def test_key_bias_opens_the_keys_of_used_maps_and_pointers(network):
    spec = network("compact").spec
    bias = key_bias(layout_of(spec), [LAST, 1], 3)[0, 0, 0]
    maps, pointers = bias[: 7 * 144].reshape(7, 144), bias[7 * 144 :].reshape(16, 2)
    assert bias.shape == (key_count(spec),) == (1040,)
    assert [row for row in range(7) if (maps[row] == 0).all()] == [1, LAST]
    assert [slot for slot in range(16) if (pointers[slot] == 0).all()] == [0, 1, 2]
    assert set(bias.tolist()) == {0.0, UNUSED_KEY}


def test_key_bias_of_a_pooled_network_opens_one_of_two_key_sets(network):
    spec = network("pooled_1").spec
    tokens = spec.grid**2
    single, several = (key_bias(layout_of(spec), rows, 1)[0, 0, 0] for rows in ([LAST], [LAST, 2]))
    assert key_count(spec) == tokens + 7 * tokens // 4 + 64
    assert (single[:tokens] == 0).all()
    assert (single[tokens : -16 * 4] == UNUSED_KEY).all()
    assert (several[:tokens] == UNUSED_KEY).all()
    assert int((several[tokens : -16 * 4] == 0).sum()) == 2 * tokens // 4
