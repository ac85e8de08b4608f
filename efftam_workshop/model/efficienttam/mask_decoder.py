"""Mask decoder: two-way attention between prompt and image tokens, then masks, IoUs and presence."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from efftam_workshop.model.common.layers import MLP, LayerNorm2d, MultiHeadAttention

MASKS = 4
HEADS = 8
STABILITY_DELTA = 0.05
STABILITY_THRESHOLD = 0.98


class DecoderOutput(NamedTuple):
    """Raw outputs of the mask decoder.

    ``masks`` [1,4,4G,4G], logits; ``ious`` [1,4], 0..1; ``presence`` [1,1], logit; ``tokens`` [1,4,C] of the
    masks.
    """

    masks: Tensor
    ious: Tensor
    presence: Tensor
    tokens: Tensor


class MaskDecoder(nn.Module):
    """SAM's two-way decoder with an object score. It returns all masks, also if the object is absent."""

    def __init__(self, grid: int, channels: int = 256) -> None:
        super().__init__()
        self.grid, self.channels = grid, channels
        self.transformer = TwoWayTransformer(channels)
        self.obj_score_token = nn.Embedding(1, channels)
        self.iou_token = nn.Embedding(1, channels)
        self.mask_tokens = nn.Embedding(MASKS, channels)
        self.output_upscaling = nn.Sequential(
            nn.ConvTranspose2d(channels, channels // 4, 2, stride=2),
            LayerNorm2d(channels // 4),
            nn.GELU(),
            nn.ConvTranspose2d(channels // 4, channels // 8, 2, stride=2),
            nn.GELU(),
        )
        self.output_hypernetworks_mlps = nn.ModuleList(
            MLP((channels, channels, channels, channels // 8)) for _ in range(MASKS)
        )
        self.iou_prediction_head = MLP((channels, channels, channels, MASKS))
        self.pred_obj_score_head = MLP((channels, channels, channels, 1))

    def forward(
        self, features: Tensor, sparse: Tensor, dense: Tensor, image_position: Tensor
    ) -> DecoderOutput:
        """Decode the masks from features and dense prompt, both [1,C,G,G], and the sparse prompt [1,t,C].

        ``image_position`` [1,C,G,G]: positional encoding of the features.
        """
        fixed = torch.cat([self.obj_score_token.weight, self.iou_token.weight, self.mask_tokens.weight])
        tokens = torch.cat([fixed[None], sparse], dim=1)
        image = (features + dense).flatten(2).transpose(1, 2)
        tokens, image = self.transformer(tokens, image, image_position.flatten(2).transpose(1, 2))

        mask_tokens = tokens[:, 2 : 2 + MASKS]
        upscaled = self.output_upscaling(
            image.transpose(1, 2).reshape(1, self.channels, self.grid, self.grid)
        )
        weights = [mlp(mask_tokens[:, i]) for i, mlp in enumerate(self.output_hypernetworks_mlps)]
        masks = torch.stack(weights, dim=1) @ upscaled.flatten(2)
        return DecoderOutput(
            masks=masks.reshape(1, MASKS, 4 * self.grid, 4 * self.grid),
            ious=self.iou_prediction_head(tokens[:, 1]).sigmoid(),
            presence=self.pred_obj_score_head(tokens[:, 0]),
            tokens=mask_tokens,
        )


class TwoWayTransformer(nn.Module):
    """Two two-way layers, followed by attention of the tokens to the image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TwoWayLayer(channels, first=index == 0) for index in range(2))
        self.final_attn_token_to_image = MultiHeadAttention(channels, HEADS, channels // 2)
        self.norm_final_attn = nn.LayerNorm(channels)

    def forward(self, tokens: Tensor, image: Tensor, image_position: Tensor) -> tuple[Tensor, Tensor]:
        """Return updated tokens [1,t,C] and image [1,N,C].

        The initial tokens also serve as the positional encoding of the tokens.
        """
        queries = tokens
        for layer in self.layers:
            queries, image = layer(queries, image, tokens, image_position)
        attended = self.final_attn_token_to_image(queries + tokens, image + image_position, image)
        return self.norm_final_attn(queries + attended), image


class TwoWayLayer(nn.Module):
    """Attention among tokens and to the image, MLP, attention from image to tokens; a norm follows each."""

    def __init__(self, channels: int, first: bool) -> None:
        super().__init__()
        self.first = first
        self.self_attn = MultiHeadAttention(channels, HEADS)
        self.norm1 = nn.LayerNorm(channels)
        self.cross_attn_token_to_image = MultiHeadAttention(channels, HEADS, channels // 2)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = MLP((channels, 2048, channels))
        self.norm3 = nn.LayerNorm(channels)
        self.norm4 = nn.LayerNorm(channels)
        self.cross_attn_image_to_token = MultiHeadAttention(channels, HEADS, channels // 2)

    def forward(
        self, queries: Tensor, keys: Tensor, query_position: Tensor, key_position: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self.first:  # as in SAM, without positional encoding and without a residual
            queries = self.self_attn(queries, queries, queries)
        else:
            positioned = queries + query_position
            queries = queries + self.self_attn(positioned, positioned, queries)
        queries = self.norm1(queries)
        positioned_keys = keys + key_position
        attended = self.cross_attn_token_to_image(queries + query_position, positioned_keys, keys)
        queries = self.norm2(queries + attended)
        queries = self.norm3(queries + self.mlp(queries))
        update = self.cross_attn_image_to_token(positioned_keys, queries + query_position, queries)
        return queries, self.norm4(keys + update)


def single_answer(masks: Tensor, ious: Tensor) -> tuple[Tensor, Tensor]:
    """Make row 0 of masks [1,4,h,w] and IoUs [4] the single-mask output; rows 1 to 3 stay unchanged.

    Row 0 stays mask 0 if this mask is stable: its area hardly changes when the threshold moves by
    `STABILITY_DELTA`. Otherwise row 0 becomes the one of rows 1 to 3 with the highest predicted IoU (SAM 2's
    dynamic multimask).
    """
    first = masks[0, 0]
    sure = (first > STABILITY_DELTA).float().sum()
    possible = (first > -STABILITY_DELTA).float().sum()
    stability = torch.where(possible > 0, sure / possible.clamp(min=1.0), 1.0)
    best = ious[1:].argmax(dim=0, keepdim=True) + 1
    answer = torch.where(stability >= STABILITY_THRESHOLD, torch.zeros_like(best), best)
    rows = torch.cat([answer, torch.arange(1, MASKS, device=best.device)])
    return masks.index_select(1, rows), ious[rows]
