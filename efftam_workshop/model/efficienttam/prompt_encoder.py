"""Prompt encoder: makes tokens from points and box corners, and a dense embedding from a mask."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from efftam_workshop.model.common.layers import LayerNorm2d, fourier_features

POINT_KINDS = 4
"""Number of labels with an embedding: 0 off the target, 1 on it, 2 and 3 corners of a box. -1 is padding."""


class PromptEncoder(nn.Module):
    """SAM's prompt encoder for an image of ``side`` px. A box is given as two labelled points."""

    def __init__(self, side: int, channels: int = 256) -> None:
        super().__init__()
        self.side = side
        self.pe_layer = GaussianPosition(channels // 2)
        self.point_embeddings = nn.ModuleList(nn.Embedding(1, channels) for _ in range(POINT_KINDS))
        self.not_a_point_embed = nn.Embedding(1, channels)
        self.no_mask_embed = nn.Embedding(1, channels)
        self.mask_downscaling = nn.Sequential(
            nn.Conv2d(1, 4, 2, stride=2),
            LayerNorm2d(4),
            nn.GELU(),
            nn.Conv2d(4, 16, 2, stride=2),
            LayerNorm2d(16),
            nn.GELU(),
            nn.Conv2d(16, channels, 1),
        )

    def sparse(self, points: Tensor, labels: Tensor) -> Tensor:
        """Encode points [1,n,2], network px, with labels [1,n] to tokens [1,n+1,C].

        The last token is that of a padding point.
        """
        points = torch.cat([points, points.new_zeros(1, 1, 2)], dim=1)
        labels = torch.cat([labels, labels.new_full((1, 1), -1)], dim=1)
        place = fourier_features(
            (points + 0.5) / self.side, self.pe_layer.positional_encoding_gaussian_matrix
        )
        kinds = torch.cat([self.not_a_point_embed.weight, *self.point_embeddings.parameters()])
        token = kinds[labels + 1]
        return torch.where((labels < 0)[..., None], token, place + token)

    def dense(self, mask_logits: Tensor) -> Tensor:
        """Encode a mask prompt [1,1,4G,4G] to [1,C,G,G].

        ``mask_logits``: logits, or a 0/1 mask that the network has reduced to this size.
        """
        return self.mask_downscaling(mask_logits)

    def no_mask(self, grid: int) -> Tensor:
        """Return the dense embedding for a prompt without a mask: [1,C,G,G]."""
        return self.no_mask_embed.weight.reshape(1, -1, 1, 1).expand(-1, -1, grid, grid)


class GaussianPosition(nn.Module):
    """Contains the random frequencies [2, C/2] of the Fourier position encoding."""

    positional_encoding_gaussian_matrix: Tensor

    def __init__(self, frequencies: int) -> None:
        super().__init__()
        self.register_buffer("positional_encoding_gaussian_matrix", torch.randn(2, frequencies))

    def dense(self, grid: int) -> Tensor:
        """Return the position encoding of every cell centre of a grid: [1,C,G,G]."""
        centre = (torch.arange(grid, dtype=torch.float32) + 0.5) / grid
        y, x = torch.meshgrid(centre, centre, indexing="ij")
        table = fourier_features(
            torch.stack([x, y], dim=-1), self.positional_encoding_gaussian_matrix.float()
        )
        return table.permute(2, 0, 1)[None]
