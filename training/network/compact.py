"""CompactTAM: a small convolutional variant of EfficientTAM for a window that follows the target.

The four modules and the memory protocol are EfficientTAM's (Xiong et al., "Efficient Track Anything", 2024).
It differs in the encoder (a convolutional trunk, with skip features at strides 8 and 4), in the widths, and
in the prompt: its box is also drawn, into the dense prompt and into the prompted frame's memory. The modules
accept batches, for training; the methods of Network take one frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efftam_ros.model.common.network import Network, NetworkSpec
from training.network.trunk import LITE0, NARROW, SHORT, Activation, TrunkConfig, stages_of

PROMPT_SLOTS = 3
NOT_A_POINT = 4
"""Row of the label embedding for an unused prompt slot (label -1)."""


@dataclass(frozen=True)
class CompactConfig:
    """Sizes of one CompactTAM."""

    spec: NetworkSpec
    trunk: TrunkConfig = LITE0
    heads: int = 4
    attention_layers: int = 2
    feedforward: int = 512
    rope_base: float = 100.0


_COMPACT_192 = NetworkSpec(
    name="compact_192",
    family="compact",
    side=192,
    channels=128,
    memory_channels=64,
    recent_maps=3,
    memory_dtype="float32",
    default_view="window",
    window_factor=5.0,
    skips=(("features_s8", 64, 8), ("features_s4", 32, 4)),
    prompt_raster=True,
    image_mean=(127 / 255, 127 / 255, 127 / 255),
    image_std=(128 / 255, 128 / 255, 128 / 255),
)
COMPACT_CONFIGS: dict[str, CompactConfig] = {
    config.spec.name: config
    for config in (
        CompactConfig(_COMPACT_192),
        CompactConfig(replace(_COMPACT_192, name="compact_192_short"), trunk=SHORT),
        CompactConfig(replace(_COMPACT_192, name="compact_192_narrow"), trunk=NARROW),
    )
}


class CompactTAM(Network):
    """The network of one CompactConfig; see the module docstring and docs/bundle.md for tensors."""

    def __init__(self, config: CompactConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = config.spec
        self.image_encoder = ImageEncoder(config)
        self.memory_attention = MemoryAttention(config)
        self.prompt_encoder = PromptEncoder(config)
        self.mask_decoder = MaskDecoder(config)
        self.memory_encoder = MemoryEncoder(config)
        self.no_memory = nn.Parameter(torch.zeros(1, self.spec.channels, 1, 1))
        self.no_pointer = nn.Parameter(torch.randn(1, self.spec.channels) * 0.02)

    def encode_image(self, image: Tensor) -> dict[str, Tensor]:
        features, features_s8, features_s4 = self.image_encoder(image)
        return {"features": features, "features_s8": features_s8, "features_s4": features_s4}

    def encode_prompt(
        self, features: Tensor, points: Tensor, labels: Tensor, mask: Tensor, has_mask: Tensor
    ) -> dict[str, Tensor]:
        sparse, dense, raster = self.prompt_encoder(points, labels, mask, has_mask)
        return {
            "conditioned": features + self.no_memory,
            "sparse": sparse,
            "dense": dense,
            "prompt_raster": raster,
        }

    def attend(
        self, features: Tensor, maps: Tensor, rows: Tensor, pointers: Tensor, key_bias: Tensor | None = None
    ) -> Tensor:
        memory = (maps.unsqueeze(0), rows, pointers.unsqueeze(0))
        attended: Tensor = self.memory_attention(features, *memory, key_bias)
        return attended

    def decode(
        self, conditioned: Tensor, sparse: Tensor, dense: Tensor, skips: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        position = self.prompt_encoder.grid_position
        source = conditioned + dense
        masks, ious, presence, pointers = self.mask_decoder(
            source, sparse, position, skips["features_s8"], skips["features_s4"]
        )
        return {
            "masks": masks,
            "ious": torch.sigmoid(ious).reshape(4),
            "presence": presence,
            "pointers": pointers.reshape(4, self.spec.channels),
        }

    def encode_map(
        self, features: Tensor, logits: Tensor, is_prompted: Tensor, prompt_raster: Tensor | None
    ) -> Tensor:
        if prompt_raster is None:
            prompt_raster = torch.zeros_like(logits)
        soft = 2 * torch.sigmoid(logits) - 1
        hard = 2 * (logits > 0).to(logits.dtype) - 1
        mask = torch.where(is_prompted, hard, soft)
        drawn = torch.where(is_prompted, prompt_raster, 0.0)
        memory: Tensor = self.memory_encoder(features, torch.cat([mask, drawn], 1))
        return memory

    @property
    def absent_pointer(self) -> Tensor:
        return self.no_pointer


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of an NCHW map."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ImageEncoder(nn.Module):
    """[B,3,S,S] -> features at strides 16, 8 and 4. Stride 32 is added to stride 16."""

    def __init__(self, config: CompactConfig) -> None:
        super().__init__()
        trunk = config.trunk
        self.taken = trunk.taken
        self.stem = nn.Conv2d(3, trunk.stem, 3, 2, 1)
        self.activation = Activation(trunk.ceiling)
        self.stages = stages_of(trunk)
        skip_channels = {stride: channels for _, channels, stride in config.spec.skips}
        self.neck32 = nn.Conv2d(trunk.channels(32), config.spec.channels, 1)
        self.neck16 = nn.Conv2d(trunk.channels(16), config.spec.channels, 1)
        self.neck8 = nn.Conv2d(trunk.channels(8), skip_channels[8], 1)
        self.neck4 = nn.Conv2d(trunk.channels(4), skip_channels[4], 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.necks(*self.trunk(image))

    def necks(self, x4: Tensor, x8: Tensor, x16: Tensor, x32: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The trunk's features at strides 4 to 32 -> outputs at strides 16, 8 and 4."""
        return with_context(self.neck16(x16), self.neck32(x32)), self.neck8(x8), self.neck4(x4)

    def trunk(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The last features at strides 4, 8, 16 and 32."""
        x = self.activation(self.stem(image))
        taken = []
        for index, stage in enumerate(self.stages):
            x = stage(x)
            if index in self.taken:
                taken.append(x)
        x4, x8, x16, x32 = taken
        return x4, x8, x16, x32


def with_context(at16: Tensor, at32: Tensor) -> Tensor:
    """The necks' outputs at strides 16 and 32 -> the encoder's features at stride 16."""
    return at16 + F.interpolate(at32, scale_factor=2.0, mode="nearest")


def batch_of(x: Tensor) -> int:
    """Batch size as an int, which tracing records as a constant."""
    return int(x.shape[0])


class CompactAttention(nn.Module):
    """Multi-head attention including its projections."""

    def __init__(self, width: int, key_width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = inner // heads
        self.query = nn.Linear(width, inner)
        self.key, self.value = nn.Linear(key_width, inner), nn.Linear(key_width, inner)
        self.out = nn.Linear(inner, width)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """[B,q,width], [B,k,key_width] twice -> [B,q,width]."""
        q, k, v = self.query(queries), self.key(keys), self.value(values)
        return self.combine(self.heads_of(q), self.heads_of(k), self.heads_of(v))

    def heads_of(self, x: Tensor) -> Tensor:
        """[B, ..., heads * head_width], flattened to n tokens -> [B, heads, n, head_width]."""
        return x.reshape(batch_of(x), -1, self.heads, self.head_width).transpose(1, 2)

    def combine(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """Heads [B,h,n,head_width] -> [B,q,width]; ``bias`` broadcasts over the logits [B,h,q,k]."""
        # Scaled before the product, so that logits stay in the range of FP16.
        logits = (q * self.head_width**-0.5) @ k.transpose(2, 3)
        if bias is not None:
            logits = logits + bias
        x = torch.softmax(logits, -1) @ v
        tokens = x.transpose(1, 2).reshape(batch_of(x), -1, self.heads * self.head_width)
        out: Tensor = self.out(tokens)
        return out


class CompactRotaryAttention(CompactAttention):
    """Attention with rotary positions of the queries and of the keys from maps."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, config: CompactConfig, key_width: int) -> None:
        width = config.spec.channels
        super().__init__(width, key_width, width, config.heads)
        self.tokens = config.spec.grid**2
        cosines, sines = rotary_tables(config.spec.grid, self.head_width, config.rope_base)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def to_itself(self, x: Tensor) -> Tensor:
        """Self-attention of a map's tokens [B,N,width]."""
        q, k = self.rotated(self.query(x)), self.rotated(self.key(x))
        return self.combine(q, k, self.heads_of(self.value(x)))

    def to_memory(self, x: Tensor, memory: Memory) -> Tensor:
        """Attention of a map's tokens [B,N,width] to maps, and to pointers, which have no position."""
        maps = self.rotated(self.key(memory.map_keys))
        keys = torch.cat([maps, self.heads_of(self.key(memory.pointer_tokens))], 2)
        values = self.heads_of(self.value(memory.values))
        return self.combine(self.rotated(self.query(x)), keys, values, memory.key_bias)

    def rotated(self, x: Tensor) -> Tensor:
        """Axial rotary position (Su et al., 2021; half-split pairs): [B,...,N,width] -> heads."""
        x = x.reshape(batch_of(x), -1, self.tokens, self.heads, self.head_width)
        half = self.head_width // 2
        a, b = x[..., :half], x[..., half:]
        turned = torch.cat([a * self.cosines - b * self.sines, a * self.sines + b * self.cosines], -1)
        return self.heads_of(turned)


class Memory(NamedTuple):
    """The keys and values that a frame attends to.

    ``map_keys``: [B,T,N,M] with their positions; ``pointer_tokens``: [B,p,M]; ``values``: of both,
    [B,T*N+p,M]; ``key_bias``: [1,1,1,T*N+p] or None.
    """

    map_keys: Tensor
    pointer_tokens: Tensor
    values: Tensor
    key_bias: Tensor | None


class MemoryAttentionLayer(nn.Module):
    """Self-attention, attention to the memory, feed-forward; pre-norm."""

    def __init__(self, config: CompactConfig) -> None:
        super().__init__()
        width = config.spec.channels
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.self_attention = CompactRotaryAttention(config, width)
        self.cross_attention = CompactRotaryAttention(config, config.spec.memory_channels)
        self.linear1 = nn.Linear(width, config.feedforward)
        self.linear2 = nn.Linear(config.feedforward, width)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        x = x + self.self_attention.to_itself(self.norm1(x))
        x = x + self.cross_attention.to_memory(self.norm2(x), memory)
        fed: Tensor = self.linear2(F.relu(self.linear1(self.norm3(x))))
        return x + fed


class MemoryAttention(nn.Module):
    """Conditions a frame's features on memory maps and object pointers."""

    query_position: Tensor
    map_position: Tensor

    def __init__(self, config: CompactConfig) -> None:
        super().__init__()
        self.spec = spec = config.spec
        self.layers = nn.ModuleList(MemoryAttentionLayer(config) for _ in range(config.attention_layers))
        self.norm = nn.LayerNorm(spec.channels)
        self.row_embedding = nn.Parameter(torch.randn(spec.temporal_rows, spec.memory_channels) * 0.02)
        self.register_buffer("query_position", 0.1 * sine_table(spec.channels, spec.grid), persistent=False)
        self.register_buffer("map_position", sine_table(spec.memory_channels, spec.grid), persistent=False)

    def forward(
        self, features: Tensor, maps: Tensor, rows: Tensor, pointers: Tensor, key_bias: Tensor | None
    ) -> Tensor:
        batch, spec = batch_of(features), self.spec
        tokens = pointers.reshape(batch, -1, spec.memory_channels)
        map_keys = maps + self.map_position + self.row_embedding[rows].unsqueeze(1)
        values = torch.cat([maps.reshape(batch, -1, spec.memory_channels), tokens], 1)
        memory = Memory(map_keys, tokens, values, key_bias)
        x = features.reshape(batch, spec.channels, -1).transpose(1, 2) + self.query_position
        for layer in self.layers:
            x = layer(x, memory)
        conditioned: Tensor = self.norm(x).transpose(1, 2)
        return conditioned.reshape(batch, spec.channels, spec.grid, spec.grid)


class PromptEncoder(nn.Module):
    """Encodes points, box and mask to three prompt tokens, a dense prompt and the rasterised box.

    There are three prompt slots: a box takes two, a click one. Further points are ignored.
    """

    gaussian: Tensor
    cell_edges: Tensor
    grid_position: Tensor

    def __init__(self, config: CompactConfig) -> None:
        super().__init__()
        spec = config.spec
        self.side, self.grid, self.low_side = spec.side, spec.grid, spec.low_side
        self.register_buffer("gaussian", torch.randn(2, spec.channels // 2))
        self.label_embedding = nn.Parameter(torch.randn(NOT_A_POINT + 1, spec.channels) * 0.1)
        self.dense = downsampler((3, 16, 32, spec.channels), kernel=2)
        self.no_dense = nn.Parameter(torch.zeros(1, spec.channels, 1, 1))
        edges = torch.arange(self.low_side + 1) * (spec.side / self.low_side)
        self.register_buffer("cell_edges", edges, persistent=False)
        self.register_buffer("grid_position", self._grid_position(), persistent=False)
        self.register_load_state_dict_post_hook(PromptEncoder._refresh)

    def forward(
        self, points: Tensor, labels: Tensor, mask: Tensor, has_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        raster = self._box_raster(self._corner(points, labels, 2), self._corner(points, labels, 3))
        is_mask = (has_mask > 0.5).to(mask.dtype).reshape(-1, 1, 1, 1)
        drawn = torch.cat([F.avg_pool2d(mask, 4) * is_mask, raster, is_mask.expand_as(raster)], 1)
        is_prompted = (has_mask > 0.5) | (labels >= 0).to(mask.dtype).sum(1).gt(0.5)
        dense = torch.where(is_prompted.reshape(-1, 1, 1, 1), self.dense(drawn), self.no_dense)
        return self._tokens(points, labels), dense, raster

    def _tokens(self, points: Tensor, labels: Tensor) -> Tensor:
        unused = torch.zeros(batch_of(points), PROMPT_SLOTS, 2, dtype=points.dtype, device=points.device)
        points = torch.cat([points, unused], 1)[:, :PROMPT_SLOTS]
        labels = torch.cat([labels, torch.full_like(unused[..., 0], -1, dtype=labels.dtype)], 1)
        labels = labels[:, :PROMPT_SLOTS]
        # As in training, where 0.5 was added to the pixel indices of clicks (edge coordinates - 0.5) and to
        # box edges.
        shift = 0.5 * (labels >= 2).to(points.dtype).unsqueeze(-1)
        position = self._fourier((points + shift) / self.side)
        is_point = (labels >= 0).unsqueeze(-1)
        index = torch.where(labels >= 0, labels, NOT_A_POINT)
        return torch.where(is_point, position, 0.0) + self.label_embedding[index]

    @staticmethod
    def _corner(points: Tensor, labels: Tensor, label: int) -> Tensor:
        """The point with this label, [B,2]; zeros without one."""
        return (points * (labels == label).to(points.dtype).unsqueeze(-1)).sum(1)

    def _box_raster(self, low: Tensor, high: Tensor) -> Tensor:
        """Share of each stride-4 cell that the box covers, [B,1,4G,4G]."""
        first, last = self.cell_edges[:-1], self.cell_edges[1:]
        low, high = low.unsqueeze(-1), high.unsqueeze(-1)
        cover = F.relu(torch.minimum(last, high) - torch.maximum(first, low)) * (self.low_side / self.side)
        return (cover[:, 1].unsqueeze(2) * cover[:, 0].unsqueeze(1)).unsqueeze(1)

    def _fourier(self, unit: Tensor) -> Tensor:
        """Random Fourier features of (x, y) in 0..1 (Tancik et al., 2020)."""
        angle = 2 * math.pi * ((2 * unit - 1) @ self.gaussian)
        return torch.cat([angle.sin(), angle.cos()], -1)

    def _grid_position(self) -> Tensor:
        centre = (torch.arange(self.grid) + 0.5) / self.grid
        y, x = torch.meshgrid(centre, centre, indexing="ij")
        grid = torch.stack([x, y], -1).reshape(1, -1, 2).to(self.gaussian)
        return self._fourier(grid)

    @staticmethod
    def _refresh(module: nn.Module, _keys: object) -> None:
        assert isinstance(module, PromptEncoder)
        module.grid_position = module._grid_position()


class TwoWayLayer(nn.Module):
    """Tokens attend to themselves and to the image, then the image to the tokens; post-norm."""

    def __init__(self, width: int, heads: int, is_first: bool) -> None:
        super().__init__()
        self.is_first = is_first
        self.self_attention = CompactAttention(width, width, width, heads)
        self.token_to_image = CompactAttention(width, width, width // 2, heads)
        self.image_to_token = CompactAttention(width, width, width // 2, heads)
        self.mlp = mlp(width, 256, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.norm3, self.norm4 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, q: Tensor, k: Tensor, tokens: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens ``q`` and image ``k``, whose positions are the initial ``tokens`` and ``position``."""
        if self.is_first:
            q = self.self_attention(q, q, q)
        else:
            q = q + self.self_attention(q + tokens, q + tokens, q)
        q = self.norm1(q)
        q = self.norm2(q + self.token_to_image(q + tokens, k + position, k))
        q = self.norm3(q + self.mlp(q))
        return q, self.norm4(k + self.image_to_token(k + position, q + tokens, q))


class MaskDecoder(nn.Module):
    """Two-way transformer, up-sampling with skips, hypernetworks and heads.

    Returns masks [B,4,4G,4G], IoUs [B,4] and presence [B] as logits, and pointers [B,4,C].
    """

    def __init__(self, config: CompactConfig) -> None:
        super().__init__()
        spec = config.spec
        width = spec.channels
        self.grid, self.width = spec.grid, width
        skip_channels = {stride: channels for _, channels, stride in spec.skips}
        c8, c4 = skip_channels[8], skip_channels[4]
        self.tokens = nn.Parameter(torch.randn(1, 6, width) * 0.1)
        self.layers = nn.ModuleList(TwoWayLayer(width, config.heads, is_first=i == 0) for i in range(2))
        self.final_attention = CompactAttention(width, width, width // 2, config.heads)
        self.final_norm = nn.LayerNorm(width)
        self.upsample8, self.norm8 = nn.ConvTranspose2d(width, c8, 2, 2), ChannelNorm(c8)
        self.refine8 = nn.Conv2d(c8, c8, 3, 1, 1)
        self.upsample4 = nn.ConvTranspose2d(c8, c4, 2, 2)
        self.refine4 = nn.Conv2d(c4, c4, 3, 1, 1)
        self.hypernetworks = nn.ModuleList(mlp(width, width, c4) for _ in range(4))
        self.iou_head = mlp(width, width, 4)
        self.presence_head = mlp(width, width, 1)
        self.pointer_head = mlp(width, width, width)

    def forward(
        self, source: Tensor, sparse: Tensor, position: Tensor, features_s8: Tensor, features_s4: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch = batch_of(source)
        tokens = torch.cat([self.tokens.expand(batch, -1, -1), sparse], 1)
        queries, image = self._two_way(tokens, source, position)
        image = image.transpose(1, 2).reshape(batch, self.width, self.grid, self.grid)
        pixels = self._upsample(image, features_s8, features_s4)
        kernels = torch.stack([net(queries[:, 2 + i]) for i, net in enumerate(self.hypernetworks)], 1)
        masks = (kernels @ pixels.flatten(2)).reshape(batch, 4, 4 * self.grid, 4 * self.grid)
        presence = self.presence_head(queries[:, 0]).reshape(batch)
        return masks, self.iou_head(queries[:, 1]), presence, self.pointer_head(queries[:, 2:6])

    def _two_way(self, tokens: Tensor, source: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        q, k = tokens, source.reshape(batch_of(source), self.width, -1).transpose(1, 2)
        for layer in self.layers:
            q, k = layer(q, k, tokens, position)
        q = self.final_norm(q + self.final_attention(q + tokens, k + position, k))
        return q, k

    def _upsample(self, image: Tensor, features_s8: Tensor, features_s4: Tensor) -> Tensor:
        x = F.gelu(self.norm8(self.upsample8(image) + features_s8))
        x = F.gelu(x + self.refine8(x))
        x = F.gelu(self.upsample4(x) + features_s4)
        fine: Tensor = x + self.refine4(x)
        return fine


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm, two pointwise layers, layer scale (Liu et al., 2022)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, 1, 3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.linear1, self.linear2 = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        h = self.linear2(F.gelu(self.linear1(h)))
        return x + torch.mul(self.scale, h).permute(0, 3, 1, 2)


class MemoryEncoder(nn.Module):
    """Features [B,C,G,G], and mask and rasterised prompt box [B,2,4G,4G] -> memory map [B,N,M]."""

    def __init__(self, config: CompactConfig) -> None:
        super().__init__()
        width = config.spec.channels
        self.mask_downsampler = downsampler((2, 16, 64, width), kernel=3)
        self.feature_projection = nn.Conv2d(width, width, 1)
        self.fuser = nn.Sequential(ConvNeXtBlock(width), ConvNeXtBlock(width))
        self.out = nn.Conv2d(width, config.spec.memory_channels, 1)

    def forward(self, features: Tensor, drawn: Tensor) -> Tensor:
        fused = self.fuser(self.feature_projection(features) + self.mask_downsampler(drawn))
        tokens: Tensor = self.out(fused).flatten(2).transpose(1, 2)
        return tokens


def downsampler(channels: tuple[int, int, int, int], kernel: int) -> nn.Sequential:
    """Two convolutions of stride 2, each with norm and GELU, then a 1x1 projection: [B,c,4G,4G] ->
    [B,C,G,G]."""
    inputs, first, second, outputs = channels
    return nn.Sequential(
        nn.Conv2d(inputs, first, kernel, 2, (kernel - 1) // 2),
        ChannelNorm(first),
        nn.GELU(),
        nn.Conv2d(first, second, kernel, 2, (kernel - 1) // 2),
        ChannelNorm(second),
        nn.GELU(),
        nn.Conv2d(second, outputs, 1),
    )


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def sine_table(channels: int, grid: int) -> Tensor:
    """Two-dimensional sine position table (DETR's form, y part first), [grid*grid, channels]."""
    half = channels // 2
    position = (torch.arange(grid) + 1) / (grid + 1e-6) * 2 * math.pi
    k = torch.arange(half)
    angle = position[:, None] / 10000 ** (2 * torch.div(k, 2, rounding_mode="floor") / half)
    line = torch.where(k % 2 == 0, angle.sin(), angle.cos())
    y = line[:, None].expand(grid, grid, half)
    x = line[None].expand(grid, grid, half)
    return torch.cat([y, x], -1).reshape(grid * grid, channels)


def rotary_tables(grid: int, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the axial rotation, each [grid*grid, 1, head_width/2]: x angles, then y angles."""
    quarter = head_width // 4
    frequency = base ** (-torch.arange(quarter) / quarter)
    token = torch.arange(grid * grid)
    x, y = token % grid, torch.div(token, grid, rounding_mode="floor")
    angle = torch.cat([x[:, None] * frequency, y[:, None] * frequency], -1).unsqueeze(1)
    return angle.cos(), angle.sin()
