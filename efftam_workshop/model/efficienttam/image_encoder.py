"""Image encoder: a plain ViT with windowed and global attention, and a projection to 256 channels."""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efftam_workshop.model.common.layers import MLP, LayerNorm2d, dot_product_attention

PATCH = 16
WINDOW = 14
DEPTH = 12
GLOBAL_BLOCKS = frozenset({2, 5, 8, 11})
PRETRAINED_GRID = 14


class ImageEncoder(nn.Module):
    """Encodes a normalised RGB image [1,3,S,S] to features [1,256,G,G]."""

    def __init__(self, grid: int, width: int, heads: int, channels: int = 256) -> None:
        super().__init__()
        self.trunk = Trunk(grid, width, heads)
        self.neck = Neck(width, channels)

    def forward(self, image: Tensor) -> Tensor:
        return self.neck(self.trunk(image).permute(0, 3, 1, 2))


class Trunk(nn.Module):
    """The ViT: maps an image [B,3,S,S] to [B,G,G,width], without a norm at the end."""

    position: Tensor

    def __init__(self, grid: int, width: int, heads: int) -> None:
        super().__init__()
        self.grid = grid
        self.patch_embed = PatchEmbed(width)
        self.pos_embed = nn.Parameter(torch.zeros(1, PRETRAINED_GRID**2 + 1, width))
        self.register_buffer("position", torch.zeros(1, grid, grid, width), persistent=False)
        self.blocks = nn.ModuleList(
            Block(grid, width, heads, window=None if index in GLOBAL_BLOCKS else WINDOW)
            for index in range(DEPTH)
        )
        self.register_load_state_dict_post_hook(lambda module, _: module.refresh())

    def refresh(self) -> None:
        """Recompute `position`: ``pos_embed`` without its class token, resized to the grid.

        Call this after ``pos_embed`` has changed.
        """
        table = self.pos_embed.detach()[:, 1:].float()
        table = table.reshape(1, PRETRAINED_GRID, PRETRAINED_GRID, -1).permute(0, 3, 1, 2)
        resized = F.interpolate(table, size=(self.grid, self.grid), mode="bicubic", align_corners=False)
        self.position.copy_(resized.permute(0, 2, 3, 1))

    def forward(self, image: Tensor) -> Tensor:
        x: Tensor = self.patch_embed(image) + self.position
        for block in self.blocks:
            x = block(x)
        return x


class PatchEmbed(nn.Module):
    """Turns patches that do not overlap into tokens: [B,3,S,S] -> [B,G,G,width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, kernel_size=PATCH, stride=PATCH)

    def forward(self, image: Tensor) -> Tensor:
        patches: Tensor = self.proj(image)
        return patches.permute(0, 2, 3, 1)


class Block(nn.Module):
    """Pre-norm transformer block on [B,G,G,width]. ``window``: side in tokens, None for global attention."""

    def __init__(self, grid: int, width: int, heads: int, window: int | None) -> None:
        super().__init__()
        self.window = window
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = SelfAttention(window or grid, width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = MLP((width, 4 * width, width), F.gelu)
        self.partition = Windows(grid, window, width) if window else None

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        if self.partition is None:
            attended = self.attn(normed)
        else:
            attended = self.partition.join(self.attn(self.partition.split(normed)))
        x = x + attended
        return x + self.mlp(self.norm2(x))


class Windows:
    """Splits [B,G,G,C] into square windows [B * windows, side, side, C] and joins them again.

    The map is padded with zeros at the bottom and right. As in the reference, padded tokens are not masked:
    their q, k and v equal the biases.
    """

    def __init__(self, grid: int, side: int, channels: int) -> None:
        self.grid, self.side, self.channels = grid, side, channels
        self.count = -(-grid // side)

    def split(self, x: Tensor) -> Tensor:
        n, s = self.count, self.side
        margin = n * s - self.grid
        x = F.pad(x, (0, 0, 0, margin, 0, margin))
        x = x.reshape(-1, n, s, n, s, self.channels).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, s, s, self.channels)

    def join(self, windows: Tensor) -> Tensor:
        n, s = self.count, self.side
        x = windows.reshape(-1, n, n, s, s, self.channels).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, n * s, n * s, self.channels)[:, : self.grid, : self.grid]


class SelfAttention(nn.Module):
    """Multi-head self-attention within square windows of tokens [B,side,side,width]."""

    def __init__(self, side: int, width: int, heads: int) -> None:
        super().__init__()
        self.side, self.width, self.heads, self.head_size = side, width, heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, self.side**2, self.width)
        q, k, v = (self._split(part) for part in self.qkv(tokens).split(self.width, dim=-1))
        attended = dot_product_attention(q, k, v, self.head_size).transpose(1, 2)
        return self.proj(attended.reshape(-1, self.side, self.side, self.width))

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self.side**2, self.heads, self.head_size).transpose(1, 2)


class Neck(nn.Module):
    """Projects the trunk's width to ``channels`` by a 1x1 and a 3x3 convolution, each followed by a norm."""

    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        level = OrderedDict(
            conv_1x1=nn.Conv2d(width, channels, 1, bias=False),
            norm_0=LayerNorm2d(channels),
            conv_3x3=nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            norm_1=LayerNorm2d(channels),
        )
        self.convs = nn.ModuleList([nn.Sequential(level)])

    def forward(self, x: Tensor) -> Tensor:
        return self.convs[0](x)
