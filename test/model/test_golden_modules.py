"""Every module gives the reference's numbers on the golden weights: FP32, 1e-4 absolute, each stored
array."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the network needs torch: scripts/setup_env --with-tests")

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from golden.stored import StoredModules
from golden.weights import seeded_normal
from torch import Tensor, nn

from efftam_workshop.model.common.layers import sine_table
from efftam_workshop.model.efficienttam.mask_decoder import single_answer
from efftam_workshop.model.efficienttam.network import EfficientTAM

LIMIT = 1e-4
CONFIGURATIONS = ("ti_512x512", "s_512x512", "ti", "ti_1", "ti_2", "s")
SIDES_AND_WIDTHS = ("ti_512x512", "s_512x512", "ti")
"""Have each side and each width between them; outside the memory attention the others repeat these."""
TEMPORAL_ROWS = {1: [6], 3: [6, 1, 0], 7: [6, 5, 4, 3, 2, 1, 0]}


def stored_cases(*cases: str) -> list[tuple[str, str]]:
    """(configuration, case) of all golden files that hold ``<case>/...``."""
    held = {name: StoredModules(name).names() for name in CONFIGURATIONS}
    return [
        (name, case)
        for name in held
        for case in cases
        if any(key.startswith(f"{case}/") for key in held[name])
    ]


every_configuration = pytest.mark.parametrize(
    "name",
    [n if n in SIDES_AND_WIDTHS else pytest.param(n, marks=pytest.mark.slow) for n in CONFIGURATIONS],
)


@contextmanager
def outputs_of(modules: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """Collects what these modules return while the block runs."""
    seen: dict[str, Tensor] = {}

    def keep(key: str):
        return lambda _module, _inputs, output: seen.__setitem__(key, output)

    handles = [module.register_forward_hook(keep(key)) for key, module in modules.items()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def assert_golden(stored: StoredModules, prefix: str, computed: Mapping[str, Tensor]) -> None:
    """All arrays stored under the prefix are among the computed ones and near enough."""
    wanted = {key for key in stored.names() if key.startswith(prefix)}
    assert wanted, prefix
    missing = wanted - computed.keys()
    assert not missing, f"not computed: {sorted(missing)}"
    worst = {key: stored.deviation(key, computed[key].numpy()) for key in wanted}
    assert max(worst.values()) <= LIMIT, {key: d for key, d in worst.items() if not d <= LIMIT}


def normal(key: str, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.from_numpy(seeded_normal(key, shape, scale))


ENCODED = [(name, source) for name in CONFIGURATIONS for source in ("clip0", "noise")]
ENCODED_FAST = [("ti_512x512", "clip0"), ("ti", "clip0"), ("ti_512x512", "noise"), ("s_512x512", "noise")]
"""One picture of each side, and one input that differs everywhere at each width."""


@pytest.mark.parametrize(
    ("name", "source"),
    [one if one in ENCODED_FAST else pytest.param(*one, marks=pytest.mark.slow) for one in ENCODED],
)
def test_image_encoder(name, source, golden_network, golden_clip, pillow_input):
    network, stored = golden_network(name), StoredModules(name)
    side, prefix = network.spec.side, f"enc/{source}/"
    clip0 = source == "clip0"
    image = pillow_input(golden_clip(False)[0][0], side) if clip0 else normal("enc_noise", 1, 3, side, side)

    trunk, neck = network.image_encoder.trunk, network.image_encoder.neck.convs[0]
    hooks = {f"{prefix}block{i}": trunk.blocks[i] for i in (0, 1, 2, 5, 11)}
    hooks |= {f"{prefix}neck_{part}": getattr(neck, part) for part in ("conv_1x1", "norm_0", "conv_3x3")}
    with outputs_of(hooks | {"patches": trunk.patch_embed}) as seen:
        seen[f"{prefix}out"] = network.encode_image(image)["features"]
    seen[f"{prefix}image"] = image
    seen[f"{prefix}patch_pos"] = seen["patches"] + trunk.position
    assert_golden(stored, prefix, seen)


@every_configuration
def test_constant_tables(name, golden_network):
    network, stored = golden_network(name), StoredModules(name)
    tables = {
        "enc/pos_table": network.image_encoder.trunk.position,
        "enc/pos_sine": sine_table(256, network.spec.grid),
        "ma/pos_sine_mem": sine_table(64, network.spec.grid),
        "md/dense_pe": network.image_position,
    }
    for key in tables.keys() & stored.names():
        assert stored.deviation(key, tables[key].numpy()) <= LIMIT, key


def memory_inputs(network: EfficientTAM, maps: int, pointers: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grid, tokens = network.spec.grid, network.spec.grid**2
    features = normal("ma_curr", tokens, 256).T.reshape(1, 256, grid, grid).contiguous()
    stack = torch.stack([normal(f"ma_mem{i}", tokens, 1, 64)[:, 0] for i in range(maps)])
    pointer = torch.cat([normal(f"ma_ptr{p}", 1, 256) for p in range(pointers)])
    return features, stack, torch.tensor(TEMPORAL_ROWS[maps]), pointer


def memory_cases() -> list:
    """A memory takes seconds at 1024 px: one map, which no network pools (test/export/test_memory_forms.py),
    runs at 512 px and in one network at 1024 px. What attends is as wide in ``s`` as in ``ti``."""
    cases = stored_cases("ma/T1P1", "ma/T3P3", "ma/T7P7", "ma/T7P16")
    slow = {(n, case) for n, case in cases if n == "s" or (case == "ma/T7P16" and "512" not in n)}
    slow |= {("ti", "ma/T1P1"), ("ti_2", "ma/T1P1"), ("s_512x512", "ma/T1P1"), ("s_512x512", "ma/T7P16")}
    return [pytest.param(*one, marks=pytest.mark.slow) if one in slow else one for one in cases]


@pytest.mark.parametrize(("name", "case"), memory_cases())
def test_memory_attention(name, case, golden_network):
    network, stored = golden_network(name), StoredModules(name)
    prefix = f"{case}/"
    maps, pointers = (int(n) for n in case.removeprefix("ma/T").split("P"))
    hooks = {f"{prefix}layer{i}": layer for i, layer in enumerate(network.memory_attention.layers)}
    with outputs_of(hooks) as seen:
        seen[f"{prefix}out"] = network.attend(*memory_inputs(network, maps, pointers))
    assert_golden(stored, prefix, seen)


@every_configuration
def test_a_frame_without_history_is_conditioned_by_one_vector(name, golden_network):
    network, stored = golden_network(name), StoredModules(name)
    side, grid = network.spec.side, network.spec.grid
    features = normal("ma_curr", grid * grid, 256).T.reshape(1, 256, grid, grid)
    out = network.encode_prompt(features, *tracking_prompt(), torch.zeros(1, 1, side, side), torch.zeros(1))
    assert stored.deviation("ma/T0P0/out", out["conditioned"].numpy()) <= LIMIT


def tracking_prompt() -> tuple[Tensor, Tensor]:
    return torch.zeros(1, 1, 2), torch.full((1, 1), -1)


POINTS = {  # network px of an input of 512 px, labels
    "track": ([(0.0, 0.0)], [-1]),
    "absent": ([(0.0, 0.0)], [-1]),
    "box": ([(86.4, 164.25), (185.6, 262.4)], [2, 3]),
    "unstable": ([(86.4, 164.25), (185.6, 262.4)], [2, 3]),
    "click": ([(136.0, 213.3)], [1]),
    "clicks2": ([(136.0, 213.3), (300.5, 40.25)], [1, 0]),
    "reprompt": ([(136.0, 213.3), (300.5, 40.25)], [1, 0]),
    "boxclick": ([(86.4, 164.25), (185.6, 262.4), (136.0, 213.3)], [2, 3, 1]),
}
MULTIMASK = {"track", "absent", "click"}


def decoder_features(grid: int, case: str) -> Tensor:
    features = normal("md_feat", 1, 256, grid, grid)
    features[:, 0] *= 3.0
    features[:, 1] += 4.0
    if case == "unstable":
        features[:, 0] *= 0.01
    if case == "absent":
        features[:, 1] -= 8.0
    return features


def decode(network: EfficientTAM, features: Tensor, sparse: Tensor, dense: Tensor) -> dict[str, Tensor]:
    """The decoder's intermediate and raw outputs under their golden names."""
    decoder = network.sam_mask_decoder
    hooks: dict[str, nn.Module] = {
        f"hyper{i}": mlp for i, mlp in enumerate(decoder.output_hypernetworks_mlps)
    }
    hooks |= {f"block{i}": layer for i, layer in enumerate(decoder.transformer.layers)}
    hooks |= {"transformer": decoder.transformer, "upscaled": decoder.output_upscaling}
    entered = []
    handle = decoder.transformer.register_forward_pre_hook(lambda _module, inputs: entered.append(inputs[0]))
    with outputs_of(hooks) as seen:
        raw = decoder(features, sparse, dense, network.image_position)
    handle.remove()
    for i in range(2):
        seen[f"block{i}_queries"], seen[f"block{i}_keys"] = seen.pop(f"block{i}")
    seen["tokens_out"], seen["src_out"] = seen.pop("transformer")
    seen |= {"tokens_in": entered[0], "sparse": sparse, "dense": dense}
    return seen | {"masks4": raw.masks, "iou4": raw.ious, "score": raw.presence}


@pytest.mark.parametrize(("name", "case"), stored_cases(*(f"md/{case}" for case in POINTS)))
def test_mask_decoder(name, case, golden_network):
    network, stored = golden_network(name), StoredModules(name)
    prefix, case = f"{case}/", case.removeprefix("md/")
    grid, side = network.spec.grid, network.spec.side
    points, labels = POINTS[case]
    features = decoder_features(grid, case)
    points_px = torch.tensor([points]) * (side / 512)
    prompt = network.encode_prompt(
        features, points_px, torch.tensor([labels]), torch.zeros(1, 1, side, side), torch.zeros(1)
    )
    sparse, dense = prompt["sparse"], prompt["dense"]
    if case == "reprompt":
        previous = normal("md_prev", 1, 1, 4 * grid, 4 * grid, scale=8.0).clamp(-32, 32)
        dense = network.sam_prompt_encoder.dense(previous)
    computed = decode(network, features, sparse, dense)

    answer = network.decode(features, sparse, dense, {})
    rows = slice(1, 4) if case in MULTIMASK else slice(0, 1)
    ious = answer["ious"][rows]
    best = int(ious.argmax())
    if case != "absent":  # two IoUs are too close there to say which is best
        assert best == int(stored.plain(f"{prefix}best"))
    present = bool(answer["presence"] > 0)
    assert present == (case != "absent")
    candidates = answer["masks"][:, rows] if present else torch.full_like(answer["masks"][:, rows], -1024.0)
    pointer = answer["pointers"][rows][best : best + 1] if present else network.no_obj_ptr
    lowres = candidates[:, best : best + 1]
    computed |= {"lowres_multi": candidates, "ious": ious[None], "lowres": lowres}
    computed |= {"highres": upsample(lowres), "ptr": pointer, "score_out": answer["presence"][None]}
    assert_golden(stored, prefix, {prefix + key: value for key, value in computed.items()})


def upsample(lowres: Tensor) -> Tensor:
    return F.interpolate(lowres, scale_factor=4.0, mode="bilinear", align_corners=False)


def test_an_unstable_single_mask_gives_way_but_its_pointer_stays(golden_network):
    network = golden_network("ti_512x512")
    features = decoder_features(network.spec.grid, "unstable")
    points, labels = POINTS["unstable"]
    prompt = network.encode_prompt(
        features, torch.tensor([points]), torch.tensor([labels]), torch.zeros(1, 1, 512, 512), torch.zeros(1)
    )
    raw = network.sam_mask_decoder(features, prompt["sparse"], prompt["dense"], network.image_position)
    answer = network.decode(features, prompt["sparse"], prompt["dense"], {})
    assert torch.equal(answer["masks"][0, 0], raw.masks[0, 2])
    assert answer["ious"][0] == raw.ious[0, 2]
    torch.testing.assert_close(
        answer["pointers"][0], network.obj_ptr_proj(raw.tokens[0, 0]), rtol=0, atol=1e-5
    )


def test_stability_counts_pixels_that_change_sides():
    ious = torch.tensor([0.1, 0.2, 0.4, 0.3])
    masks = torch.zeros(1, 4, 10, 10) - 1.0
    masks[0, 0].view(-1)[:98] = 1.0
    masks[0, 2] = 7.0
    assert single_answer(masks, ious)[1][0] == ious[0]
    masks[0, 0].view(-1)[98:100] = 0.0  # 98 of 100 still reach the threshold
    assert single_answer(masks, ious)[1][0] == ious[0]
    masks[0, 0, 0, 0] = 0.0
    picked, scores = single_answer(masks, ious)
    assert scores[0] == ious[2]
    assert torch.equal(picked[0, 0], masks[0, 2])
    assert torch.equal(picked[0, 1:], masks[0, 1:])
    masks[0, 0] = -1.0  # an empty mask is stable
    assert single_answer(masks, ious)[1][0] == ious[0]


@every_configuration
def test_mask_prompt(name, golden_network, golden_clip):
    network, stored = golden_network(name), StoredModules(name)
    grid, side = network.spec.grid, network.spec.side
    drawn = torch.tensor(golden_clip(False)[1][0])[None, None].float()
    mask = F.interpolate(drawn, size=(side, side), mode="bilinear", align_corners=False, antialias=True)
    mask = (mask >= 0.5).float()
    if side == 512 and name.startswith("ti"):
        bits = np.unpackbits(stored.plain("md/maskprompt/mask_bits"))[: mask.numel()]
        np.testing.assert_array_equal(mask.numpy().ravel(), bits)
    features = decoder_features(grid, "maskprompt")
    prompt = network.encode_prompt(features, *tracking_prompt(), mask, torch.ones(1))
    assert torch.equal(prompt["conditioned"], features)
    computed = decode(network, features, prompt["sparse"], prompt["dense"])
    answer = network.decode(features, prompt["sparse"], prompt["dense"], {})
    lowres = F.interpolate(
        20 * mask - 10, scale_factor=0.25, mode="bilinear", align_corners=False, antialias=True
    )
    computed |= {"mask": mask, "mask_down": network.mask_downsample(mask), "ptr": answer["pointers"][:1]}
    computed |= {"lowres": lowres, "highres": 20 * mask - 10}
    computed |= {"ious": torch.ones(1, 1), "score_out": torch.full((1, 1), 10.0)}
    prefix = "md/maskprompt/"
    assert_golden(stored, prefix, {prefix + key: value for key, value in computed.items()})


@every_configuration
@pytest.mark.parametrize("case", ["soft", "hard", "absent"])
def test_memory_encoder(name, case, golden_network):
    network, stored = golden_network(name), StoredModules(name)
    grid, side, prefix = network.spec.grid, network.spec.side, f"me/{case}/"
    features = normal("me_pix", grid * grid, 1, 256)[:, 0].T.reshape(1, 256, grid, grid).contiguous()
    coarse = normal("me_mask", 1, 1, 32, 32, scale=5.0)
    logits = F.interpolate(coarse, size=(side, side), mode="bilinear", align_corners=False)
    if case == "absent":
        logits = torch.full_like(logits, -1024.0)
    mask = 20 * ((logits > 0).float() if case == "hard" else logits.sigmoid()) - 10

    encoder = network.memory_encoder
    hooks: dict[str, nn.Module] = {f"{prefix}mask_down": encoder.mask_downsampler}
    hooks |= {f"{prefix}pix_proj": encoder.pix_feat_proj}
    hooks |= {f"{prefix}fuser{i}": block for i, block in enumerate(encoder.fuser.layers)}
    with outputs_of(hooks) as seen:
        seen[f"{prefix}out"] = encoder(features, mask)
    seen[f"{prefix}mask_logits"] = logits
    assert_golden(stored, prefix, seen)
