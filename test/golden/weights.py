"""Artificial EfficientTAM weights, the same on every machine: the golden numbers belong to them.

Every tensor is normal noise whose seed is the CRC-32 of its name, scaled so that activations keep a sane
size. Over the noise lies a planted path that makes the network follow the red target of the golden clip:
channel 0 of the features says "this patch is red" and becomes the mask logits, channel 1 says "the scene is
lit" and becomes the presence logit. The other channels stay random, so that any wiring mistake changes the
outputs.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

ABS_SUM = {"ti": 810_965.2, "s": 1_347_968.6}  # sum of |w| over all tensors, relative tolerance 1e-6

_DAMP = np.float32(0.05)
_BRANCH_ENDS = (".attn.proj", ".out_proj", ".linear2", ".mlp.layers.1", ".pwconv2")
_DAMPED_TRUNKS = (
    "image_encoder.trunk.blocks.",
    "memory_attention.layers.",
    "sam_mask_decoder.transformer.layers.",
)
_TABLES = {
    "maskmem_tpos_enc": (0.3, 0.0),
    "no_mem_embed": (0.3, 0.0),
    "no_mem_pos_enc": (0.1, 0.0),
    "no_obj_ptr": (0.5, 0.0),
    "positional_encoding_gaussian_matrix": (1.0, 0.0),
    "pos_embed": (0.3, 0.0),
    "gamma": (0.05, 0.3),
    "bias": (0.05, 0.0),
}


def seeded_normal(name: str, shape: tuple[int, ...], scale: float = 1.0, offset: float = 0.0) -> Array:
    """Normal noise float32 of this shape, reproducible from the name; also the golden modules' inputs."""
    generator = np.random.RandomState(zlib.crc32(f"efftam-golden-1/{name}".encode("ascii")))
    return (generator.standard_normal(size=tuple(shape)) * scale + offset).astype(np.float32)


def layout(size: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an official state dict; ``size`` is ``ti`` or ``s``."""
    text = Path(__file__).with_name(f"layout_{size}.json").read_text()
    return {name: tuple(shape) for name, shape in json.loads(text).items()}


def weights(size: str) -> dict[str, Array]:
    """The artificial state dict of ``ti`` or ``s`` as numpy arrays."""
    state = {name: _noise(name, shape) for name, shape in layout(size).items()}
    _damp_branches(state)
    _plant_encoder(state)
    _plant_masks(state)
    _plant_presence(state)
    return state


def _noise(name: str, shape: tuple[int, ...]) -> Array:
    leaf = name.rsplit(".", 1)[-1]
    if leaf in _TABLES:
        return seeded_normal(name, shape, *_TABLES[leaf])
    if len(shape) == 1:
        return seeded_normal(name, shape, 0.1, 1.0)
    if name.endswith(("_token.weight", "_tokens.weight", "_embed.weight")) or "point_embeddings" in name:
        return seeded_normal(name, shape, 0.7)
    inputs = shape[0] if "output_upscaling" in name else int(np.prod(shape[1:]))
    values = seeded_normal(name, shape, _gain(name) / np.sqrt(inputs))
    if name.endswith(".qkv.weight"):
        values[: 2 * shape[1]] *= np.float32(1.5)  # queries and keys, not values
    return values


def _gain(name: str) -> float:
    module = name.removesuffix(".weight")
    if module.endswith(_BRANCH_ENDS):
        return 0.5  # depth must not blow the residual stream up
    if module.endswith(("q_proj", "k_proj")):
        return 1.5
    if module.endswith(".layers.0") and ".mlps." not in name:
        return 1.4
    return 1.0


def _damp_branches(state: dict[str, Array]) -> None:
    """Random branches leave the two planted channels nearly alone."""
    for name, values in state.items():
        if name.startswith(_DAMPED_TRUNKS) and name.rpartition(".")[0].endswith(_BRANCH_ENDS):
            values[:2] *= _DAMP
    for name in ("image_encoder.trunk.pos_embed", "no_mem_embed", "sam_prompt_encoder.no_mask_embed.weight"):
        state[name][..., :2] *= _DAMP


def _plant_encoder(state: dict[str, Array]) -> None:
    """Channel 0 = 16 (redness - 0.25), channel 1 = 20 (luminance - 0.2), as means over a patch."""
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    kernel = state["image_encoder.trunk.patch_embed.proj.weight"]
    bias = state["image_encoder.trunk.patch_embed.proj.bias"]
    redness, luminance = np.array([1.0, -0.5, -0.5]), np.array([1.0, 1.0, 1.0]) / 3.0
    for channel, gain, mix, threshold in ((0, 16.0, redness, 0.25), (1, 20.0, luminance, 0.2)):
        colour = (gain * mix * std / 256.0).astype(np.float32)
        kernel[channel] = kernel[channel] * _DAMP + colour[:, None, None]
        bias[channel] = np.float32(gain * (float(mix @ mean) - threshold))

    neck = "image_encoder.neck.convs.0."
    for conv, gain in ((state[neck + "conv_1x1.weight"], 3.0), (state[neck + "conv_3x3.weight"], 1.5)):
        conv[:2] *= _DAMP
        centre = conv.shape[-1] // 2
        conv[[0, 1], [0, 1], centre, centre] = gain
    state["memory_attention.norm.weight"][:2] = 2.0


def _plant_masks(state: dict[str, Array]) -> None:
    """Channel 0 goes as a pair of opposite signs through the upscaling into the hypernetworks' biases."""
    decoder = "sam_mask_decoder."
    for layer in (0, 1):
        state[f"{decoder}transformer.layers.{layer}.norm4.weight"][:2] = 1.3
    first, second = state[decoder + "output_upscaling.0.weight"], state[decoder + "output_upscaling.3.weight"]
    first[:, :2] *= np.float32(0.3)
    first[0, 0], first[0, 1] = 1.0, -1.0
    second[:, :2] *= np.float32(0.3)
    second[[0, 1], [0, 1]] = 1.0
    for mask in range(4):
        last = f"{decoder}output_hypernetworks_mlps.{mask}.layers.2."
        state[last + "weight"] *= np.float32(0.5)
        state[last + "bias"][:2] = 3.0, -3.0


def _plant_presence(state: dict[str, Array]) -> None:
    """Token-to-image attention copies channel 1 into the tokens; the score head reads it there."""
    decoder = "sam_mask_decoder."
    attentions = [f"layers.{layer}.cross_attn_token_to_image" for layer in (0, 1)] + [
        "final_attn_token_to_image"
    ]
    for attention in attentions:
        value = state[f"{decoder}transformer.{attention}.v_proj.weight"]
        out = state[f"{decoder}transformer.{attention}.out_proj.weight"]
        value[0] *= _DAMP
        value[0, 1] = 1.0
        out[1] *= _DAMP
        out[1, 0] = 1.0
    first, second, third = (state[f"{decoder}pred_obj_score_head.layers.{i}.weight"] for i in range(3))
    first[[0, 1], 1] = 1.5, -1.5
    second[:2] *= np.float32(0.2)
    second[[0, 1], [0, 1]] = 1.0
    third *= np.float32(0.3)
    third[0, :2] = 0.5, -0.5
    state[decoder + "iou_prediction_head.layers.2.bias"][:] = 1.0, 1.3, 1.6, 1.1
