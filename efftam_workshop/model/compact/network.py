"""CompactTAM: a small convolutional variant of EfficientTAM for a window that follows the target.

The four modules and the memory protocol are EfficientTAM's (Xiong et al., "Efficient Track Anything", 2024).
The differences are: the image encoder is a convolutional trunk with skip features at strides 8 and 4; the
widths are smaller; the prompt's box is also drawn as a raster, into the dense prompt and into the memory of
the prompted frame. The modules accept batches, for training. The methods of `Network` take one frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efftam_workshop.model.common.layers import LayerNorm2d, sine_rows
from efftam_workshop.model.common.network import Network, NetworkSpec
from efftam_workshop.model.compact.trunk import STAGES, STEM, TAKEN, activation, make_stages

PROMPT_SLOTS = 3
OUTPUT_TOKENS = 6
"""The decoder's own tokens: one for presence, one for predicted IoU and four for masks."""
NOT_A_POINT = 4
"""Row of the label embedding for an unused prompt slot, whose label is -1."""


SPEC = NetworkSpec(
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
SIDE, GRID, LOW_SIDE, WIDTH, MEMORY = SPEC.side, SPEC.grid, SPEC.low_side, SPEC.channels, SPEC.memory_channels
SKIP = {stride: channels for _, channels, stride in SPEC.skips}
"""Number of channels of each skip feature, by stride."""
HEADS, ATTENTION_LAYERS, FEEDFORWARD, ROPE_BASE = 4, 2, 512, 100.0


class CompactTAM(Network):
    """The network compact_192. docs/bundle.md describes its tensors."""

    spec = SPEC

    def __init__(self) -> None:
        super().__init__()
        self.image_encoder = CompactImageEncoder()
        self.memory_attention = CompactMemoryAttention()
        self.prompt_encoder = CompactPromptEncoder()
        self.mask_decoder = CompactMaskDecoder()
        self.memory_encoder = CompactMemoryEncoder()
        self.no_memory = nn.Parameter(torch.zeros(1, WIDTH, 1, 1))
        self.no_pointer = nn.Parameter(torch.randn(1, WIDTH) * 0.02)

    def encode_image(self, image: Tensor) -> dict[str, Tensor]:
        features, features_s8, features_s4 = self.image_encoder(image)
        return {"features": features, "features_s8": features_s8, "features_s4": features_s4}

    def encode_prompt(
        self, features: Tensor, points: Tensor, labels: Tensor, mask: Tensor, has_mask: Tensor
    ) -> dict[str, Tensor]:
        sparse, dense, raster = self.prompt_encoder(points, labels, mask, has_mask)
        return {
            "conditioned": features + self.no_memory,
            "sparse": self.mask_decoder.opened(sparse),
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
            "pointers": pointers.reshape(4, WIDTH),
        }

    def encode_map(
        self, features: Tensor, logits: Tensor, is_prompted: Tensor, prompt_raster: Tensor | None
    ) -> Tensor:
        if prompt_raster is None:
            prompt_raster = torch.zeros_like(logits)
        mask = torch.where(is_prompted, torch.sign(logits), torch.tanh(0.5 * logits))
        drawn = torch.where(is_prompted, prompt_raster, 0.0)
        memory: Tensor = self.memory_encoder(features, torch.cat([mask, drawn], 1))
        return memory

    @property
    def absent_pointer(self) -> Tensor:
        return self.no_pointer


class CompactImageEncoder(nn.Module):
    """Encodes images [B,3,S,S] to features at strides 16, 8 and 4; those at stride 32 are added to 16."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, STEM, 3, 2, 1)
        self.activation = activation()
        self.stages = make_stages()
        given = {stride: STAGES[index].channels for stride, index in TAKEN.items()}
        self.neck32, self.neck16 = (nn.Conv2d(given[stride], WIDTH, 1) for stride in (32, 16))
        self.neck8, self.neck4 = (nn.Conv2d(given[stride], SKIP[stride], 1) for stride in (8, 4))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x4, x8, x16, x32 = self.trunk(image)
        features = self.neck16(x16) + F.interpolate(self.neck32(x32), scale_factor=2.0, mode="nearest")
        return features, self.neck8(x8), self.neck4(x4)

    def trunk(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the trunk's last features at strides 4, 8, 16 and 32."""
        x = self.activation(self.stem(image))
        taken = []
        for index, stage in enumerate(self.stages):
            x = stage(x)
            if index in TAKEN.values():
                taken.append(x)
        x4, x8, x16, x32 = taken
        return x4, x8, x16, x32


def batch_of(x: Tensor) -> int:
    """Return the batch size as an int, which tracing records as a constant."""
    return int(x.shape[0])


def joined(*layers: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return weight and bias of one linear layer whose outputs are those of all ``layers``."""
    return torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers])


def scaled(factor: float, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return a linear layer's result for rows ``x`` times ``factor``, computed by one Gemm."""
    return torch.addmm(bias, x, weight.t(), beta=factor, alpha=factor)


class CompactAttention(nn.Module):
    """Multi-head attention with its projections.

    Tokens are rows [B*n, width], so that every projection is one Gemm. Heads are [B,heads,n,head_width].
    """

    def __init__(self, width: int, key_width: int, inner: int) -> None:
        super().__init__()
        self.head_width = inner // HEADS
        self.query = nn.Linear(width, inner)
        self.key, self.value = nn.Linear(key_width, inner), nn.Linear(key_width, inner)
        self.out = nn.Linear(inner, width)

    def forward(self, batch: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend from rows of queries [B*q,width] to rows of keys and values; returns [B*q,width].

        ``keys`` and ``values`` are [B*k,key_width].
        """
        # The queries are scaled before the product with the keys, so that logits stay in the range of FP16.
        scale = self.head_width**-0.5
        q = scaled(scale, queries, self.query.weight, self.query.bias)
        k = self.split(self.key(keys), batch).permute(0, 2, 3, 1)
        v = self.split(self.value(values), batch).transpose(1, 2)
        return self.combine(self.split(q, batch).transpose(1, 2), k, v)

    def split(self, x: Tensor, batch: int) -> Tensor:
        """Reshape rows [B*n,heads*head_width] to [B,n,heads,head_width]."""
        return x.reshape(batch, -1, int(x.shape[1]) // self.head_width, self.head_width)

    def combine(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """Attend and project the result to [B*q,width].

        ``q`` [B,h,q,d]: scaled queries. ``k`` [B,h,d,k]: keys. ``v`` [B,h,k,d]: values. ``bias`` is broadcast
        over the logits [B,h,q,k].
        """
        logits = q @ k
        if bias is not None:
            logits = logits + bias
        x = torch.softmax(logits, -1) @ v
        out: Tensor = self.out(x.transpose(1, 2).reshape(-1, HEADS * self.head_width))
        return out


class Memory(NamedTuple):
    """Keys and values of the memory for one layer.

    ``keys`` [B,h,d,T*N+p]: the maps' keys are rotated by their positions. ``values`` [B,h,T*N+p,d]. ``bias``:
    [1,1,1,T*N+p] or None.
    """

    keys: Tensor
    values: Tensor
    bias: Tensor | None


class CompactRotaryAttention(CompactAttention):
    """Attention with rotary positions of the queries and of the keys of maps."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, key_width: int) -> None:
        super().__init__(WIDTH, key_width, WIDTH)
        self.root_scale = self.head_width**-0.25
        cosines, sines = rotary_tables(self.head_width)
        self.register_buffer("cosines", self.root_scale * cosines, persistent=False)
        self.register_buffer("sines", self.root_scale * sines, persistent=False)

    def to_itself(self, batch: int, x: Tensor) -> Tensor:
        """Compute the self-attention of a map's tokens [B*N,width]; returns the same shape."""
        qkv = F.linear(x, *joined(self.query, self.key, self.value))
        heads = self.split(qkv, batch).transpose(1, 2)
        pair, v = heads.split((2 * HEADS, HEADS), 1)
        q, k = self.turned(pair).split(HEADS, 1)
        return self.combine(q, k.transpose(2, 3), v)

    def to_memory(self, batch: int, x: Tensor, memory: Memory) -> Tensor:
        """Compute the attention of a map's tokens [B*N,width] to the memory; returns the same shape."""
        q = self.turned(self.split(self.query(x), batch).transpose(1, 2))
        return self.combine(q, *memory)

    def turned(self, heads: Tensor) -> Tensor:
        """Rotate heads [B,h,T*N,d] by their axial positions and scale them by ``root_scale``.

        Source: Su et al., 2021. Here the two values of a pair are half of the head's width apart.
        """
        batch, count, half = batch_of(heads), int(heads.shape[1]), self.head_width // 2
        pairs = heads.reshape(batch, count, -1, len(self.cosines), 2, half)
        turned = pairs * self.cosines + pairs.flip(-2) * self.sines
        return turned.reshape(batch, count, -1, self.head_width)


class MemoryAttentionLayer(nn.Module):
    """Self-attention, attention to the memory and feed-forward, each with a norm before it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.self_attention = CompactRotaryAttention(WIDTH)
        self.cross_attention = CompactRotaryAttention(MEMORY)
        self.linear1, self.linear2 = nn.Linear(WIDTH, FEEDFORWARD), nn.Linear(FEEDFORWARD, WIDTH)

    def forward(self, batch: int, x: Tensor, memory: Memory) -> Tensor:
        x = x + self.self_attention.to_itself(batch, self.norm1(x))
        x = x + self.cross_attention.to_memory(batch, self.norm2(x), memory)
        fed: Tensor = self.linear2(F.relu(self.linear1(self.norm3(x))))
        return x + fed


class CompactMemoryAttention(nn.Module):
    """Conditions a frame's features on memory maps and object pointers."""

    query_position: Tensor
    map_position: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MemoryAttentionLayer() for _ in range(ATTENTION_LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.row_embedding = nn.Parameter(torch.randn(SPEC.temporal_rows, MEMORY) * 0.02)
        self.register_buffer("query_position", 0.1 * sine_rows(WIDTH, GRID), persistent=False)
        self.register_buffer("map_position", sine_rows(MEMORY, GRID), persistent=False)

    def forward(
        self, features: Tensor, maps: Tensor, rows: Tensor, pointers: Tensor, key_bias: Tensor | None
    ) -> Tensor:
        batch = batch_of(features)
        memories = self._memories(maps, rows, pointers, key_bias)
        x = (features.flatten(2).transpose(1, 2) + self.query_position).reshape(-1, WIDTH)
        for layer, memory in zip(self.layers, memories, strict=True):
            x = layer(batch, x, memory)
        conditioned: Tensor = self.norm(x).reshape(batch, -1, WIDTH).transpose(1, 2)
        return conditioned.reshape(batch, WIDTH, GRID, GRID)

    def _memories(
        self, maps: Tensor, rows: Tensor, pointers: Tensor, bias: Tensor | None
    ) -> Iterator[Memory]:
        """Yield the memory for each layer. All layers are projected at once.

        ``maps`` [B,T,N,M] get positional encodings. ``pointers`` [B,P,C] get none; each pointer becomes C/M
        tokens.
        """
        batch = batch_of(maps)
        crosses: list[Any] = [layer.cross_attention for layer in self.layers]
        first = crosses[0]
        key, value = joined(*(cross.key for cross in crosses)), joined(*(cross.value for cross in crosses))
        positions = self.map_position + self.row_embedding.unsqueeze(1)
        placed = (maps + positions[rows]).reshape(-1, MEMORY)
        tokens = pointers.reshape(batch, -1, MEMORY)
        of_maps = first.turned(first.split(F.linear(placed, *key), batch).transpose(1, 2))
        of_pointers = scaled(first.root_scale, tokens.reshape(-1, MEMORY), *key)
        keys = torch.cat([of_maps, first.split(of_pointers, batch).transpose(1, 2)], 2)
        remembered = torch.cat([maps.reshape(batch, -1, MEMORY), tokens], 1).reshape(-1, MEMORY)
        values = first.split(F.linear(remembered, *value), batch).transpose(1, 2)
        each = zip(keys.split(HEADS, 1), values.split(HEADS, 1), strict=True)
        return (Memory(k.transpose(2, 3), v, bias) for k, v in each)


class CompactPromptEncoder(nn.Module):
    """Encodes points, box and mask to three prompt tokens, a dense prompt and the rasterised box.

    There are three prompt slots: a box takes two, a click one. Further points are ignored.
    """

    gaussian: Tensor
    cells: Tensor
    box_labels: Tensor
    grid_position: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gaussian", torch.randn(2, WIDTH // 2))
        self.label_embedding = nn.Parameter(torch.randn(NOT_A_POINT + 1, WIDTH) * 0.1)
        self.dense = downsampler((3, 16, 32, WIDTH), kernel=2)
        self.no_dense = nn.Parameter(torch.zeros(1, WIDTH, 1, 1))
        self.register_buffer("cells", torch.arange(float(LOW_SIDE)), persistent=False)
        self.register_buffer("box_labels", torch.tensor([[[2], [3]]]), persistent=False)
        self.register_buffer("grid_position", self._grid_position(), persistent=False)
        self.register_load_state_dict_post_hook(CompactPromptEncoder._refresh)

    def forward(
        self, points: Tensor, labels: Tensor, mask: Tensor, has_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        raster = self._box_raster(points, labels)
        is_mask = has_mask.reshape(-1, 1, 1, 1)
        drawn = torch.cat([F.avg_pool2d(mask, 4) * is_mask, raster, is_mask.expand_as(raster)], 1)
        is_prompted = (has_mask > 0.5) | (labels.amax(1) >= 0)
        dense = torch.where(is_prompted.reshape(-1, 1, 1, 1), self.dense(drawn), self.no_dense)
        return self._tokens(points, labels), dense, raster

    def _tokens(self, points: Tensor, labels: Tensor) -> Tensor:
        unused = torch.zeros(batch_of(points), PROMPT_SLOTS, 2, dtype=points.dtype, device=points.device)
        points = torch.cat([points, unused], 1)[:, :PROMPT_SLOTS]
        labels = torch.cat([labels, torch.full_like(unused[..., 0], -1, dtype=labels.dtype)], 1)
        labels = labels[:, :PROMPT_SLOTS].unsqueeze(-1)
        # The offsets are those of training. There 0.5 was added to the pixel index of a click, which gives
        # the coordinate in ``points``. 0.5 was also added to box edges (labels 2 and 3).
        from_centre = points + torch.where(labels >= 2, 0.5 - SIDE / 2, -SIDE / 2)
        position = self._fourier(from_centre * (2 / SIDE))
        is_point = labels >= 0
        index = torch.where(is_point, labels, NOT_A_POINT).squeeze(-1)
        return torch.where(is_point, position, 0.0) + self.label_embedding[index]

    def _box_raster(self, points: Tensor, labels: Tensor) -> Tensor:
        """Return the share of each cell at stride 4 that the box covers, [B,1,4G,4G]; zeros without a box."""
        # Corners [B,2,2,1] in cells; the second axis is low and high, the third is x and y.
        per_point = torch.where(labels.unsqueeze(1) == self.box_labels, LOW_SIDE / SIDE, 0.0)
        corners = (per_point.unsqueeze(-1) * points.unsqueeze(1)).sum(2).unsqueeze(-1)
        low, high = (corners - self.cells).clamp(0, 1).split(1, 1)
        x, y = F.relu(high - low).split(1, 2)
        return x * y.transpose(2, 3)

    def _fourier(self, place: Tensor) -> Tensor:
        """Return random Fourier features of places (x, y) in -1..1 (Tancik et al., 2020)."""
        angle = (2 * math.pi * place) @ self.gaussian
        return torch.cat([angle.sin(), angle.cos()], -1)

    def _grid_position(self) -> Tensor:
        centre = (2 * torch.arange(GRID) + 1) / GRID - 1
        y, x = torch.meshgrid(centre, centre, indexing="ij")
        grid = torch.stack([x, y], -1).reshape(1, -1, 2).to(self.gaussian)
        return self._fourier(grid)

    @staticmethod
    def _refresh(module: nn.Module, _keys: object) -> None:
        assert isinstance(module, CompactPromptEncoder)
        module.grid_position = module._grid_position()


class CompactTwoWayLayer(nn.Module):
    """Attention among the tokens, from tokens to image and from image to tokens, each followed by a norm."""

    def __init__(self, is_first: bool) -> None:
        super().__init__()
        self.is_first = is_first
        self.self_attention = CompactAttention(WIDTH, WIDTH, WIDTH)
        self.token_to_image = CompactAttention(WIDTH, WIDTH, WIDTH // 2)
        self.image_to_token = CompactAttention(WIDTH, WIDTH, WIDTH // 2)
        self.mlp = mlp(WIDTH, 256, WIDTH)
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.LayerNorm(WIDTH) for _ in range(4))

    def among_tokens(self, batch: int, q: Tensor, placed: Tensor) -> Tensor:
        """Compute the self-attention of the tokens ``q``; ``placed``: the tokens with their positions.

        In the first layer both are the initial tokens, and nothing is added to the attention's result.
        """
        attended = self.self_attention(batch, placed, placed, q)
        normed: Tensor = self.norm1(attended if self.is_first else q + attended)
        return normed

    def forward(
        self, batch: int, q: Tensor, k: Tensor, tokens: Tensor, position: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the rest of the layer after `among_tokens`, for rows ``q`` (tokens) and ``k`` (image).

        The positional encoding of ``q`` is the initial ``tokens``; that of ``k`` is ``position``. Returns
        the new ``q``, the new ``q`` plus its positional encoding, and the new ``k``.
        """
        at = with_position(k, position)
        q = self.norm2(q + self.token_to_image(batch, q + tokens, at, k))
        q = self.norm3(q + self.mlp(q))
        placed = q + tokens
        return q, placed, self.norm4(k + self.image_to_token(batch, at, placed, q))


def with_position(rows: Tensor, position: Tensor) -> Tensor:
    """Add the positions [1,N,C] to the rows [B*N,C] of maps."""
    return (rows.reshape(-1, *position.shape[1:]) + position).reshape(rows.shape)


class CompactMaskDecoder(nn.Module):
    """Mask decoder: two-way transformer, up-sampling with skip features, hypernetworks and heads.

    Takes the tokens from `opened`. Returns masks [B,4,4G,4G], IoUs [B,4] and presence [B], all as logits, and
    pointers [B,4,C].
    """

    def __init__(self) -> None:
        super().__init__()
        c8, c4 = SKIP[8], SKIP[4]
        self.tokens = nn.Parameter(torch.randn(1, OUTPUT_TOKENS, WIDTH) * 0.1)
        self.layers = nn.ModuleList(CompactTwoWayLayer(is_first=i == 0) for i in range(2))
        self.final_attention = CompactAttention(WIDTH, WIDTH, WIDTH // 2)
        self.final_norm = nn.LayerNorm(WIDTH)
        self.upsample8, self.norm8 = nn.ConvTranspose2d(WIDTH, c8, 2, 2), LayerNorm2d(c8)
        self.refine8 = nn.Conv2d(c8, c8, 3, 1, 1)
        self.upsample4 = nn.ConvTranspose2d(c8, c4, 2, 2)
        self.refine4 = nn.Conv2d(c4, c4, 3, 1, 1)
        self.hypernetworks = nn.ModuleList(mlp(WIDTH, WIDTH, c4) for _ in range(4))
        self.iou_head = mlp(WIDTH, WIDTH, 4)
        self.presence_head = mlp(WIDTH, WIDTH, 1)
        self.pointer_head = mlp(WIDTH, WIDTH, WIDTH)

    def forward(
        self, source: Tensor, opened: Tensor, position: Tensor, features_s8: Tensor, features_s4: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch = batch_of(source)
        queries, image = self._two_way(batch, opened, source, position)
        image = image.reshape(batch, -1, WIDTH).transpose(1, 2)
        image = image.reshape(batch, WIDTH, GRID, GRID)
        pixels = self._upsample(image, features_s8, features_s4)
        queries = queries.reshape(batch, -1, WIDTH)
        of_presence, of_iou, of_masks, _ = queries.split((1, 1, 4, PROMPT_SLOTS), 1)
        masks = (self._kernels(of_masks) @ pixels.flatten(2)).reshape(batch, 4, 4 * GRID, 4 * GRID)
        presence = self.presence_head(of_presence.reshape(batch, -1)).reshape(batch)
        pointers = self.pointer_head(of_masks.reshape(-1, WIDTH)).reshape(batch, 4, -1)
        return masks, self.iou_head(of_iou.reshape(batch, -1)), presence, pointers

    def _kernels(self, tokens: Tensor) -> Tensor:
        """Apply the four hypernetworks to their tokens [B,4,C]; returns [B,4,c], the kernels of the masks."""
        networks: list[Any] = list(self.hypernetworks)
        x = tokens.unsqueeze(-1)
        for index in (0, 2):
            weight, bias = joined(*(network[index] for network in networks))
            x = weight.reshape(4, -1, x.shape[2]) @ x + bias.reshape(4, -1, 1)
            x = F.relu(x) if index == 0 else x
        return x.squeeze(-1)

    def opened(self, sparse: Tensor) -> Tensor:
        """Compute the part of the decoder that depends on a prompt's tokens ``sparse`` but not on the image.

        Returns [B,18,C]: all nine tokens (the decoder's own, then the prompt's), followed by their values
        after the first self-attention.
        """
        batch = batch_of(sparse)
        own = self.tokens if batch == 1 else self.tokens.expand(batch, -1, -1)
        tokens = torch.cat([own, sparse], 1)
        rows = tokens.reshape(-1, WIDTH)
        layer: Any = self.layers[0]
        first = layer.among_tokens(batch, rows, rows).reshape(batch, -1, WIDTH)
        return torch.cat([tokens, first], 1)

    def _two_way(self, batch: int, opened: Tensor, source: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        tokens, q = (x.reshape(-1, WIDTH) for x in opened.split(OUTPUT_TOKENS + PROMPT_SLOTS, 1))
        k = source.flatten(2).transpose(1, 2).reshape(-1, WIDTH)
        layers: list[Any] = list(self.layers)
        first, second = layers
        q, placed, k = first(batch, q, k, tokens, position)
        q, placed, k = second(batch, second.among_tokens(batch, q, placed), k, tokens, position)
        q = self.final_norm(q + self.final_attention(batch, placed, with_position(k, position), k))
        return q, k

    def _upsample(self, image: Tensor, features_s8: Tensor, features_s4: Tensor) -> Tensor:
        x = F.gelu(self.norm8(self.upsample8(image) + features_s8))
        x = F.gelu(x + self.refine8(x))
        x = F.gelu(self.upsample4(x) + features_s4)
        fine: Tensor = x + self.refine4(x)
        return fine


class CompactConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm, two pointwise layers, layer scale (Liu et al., 2022)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, 1, 3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.linear1, self.linear2 = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        rows = self.linear2(F.gelu(self.linear1(h.flatten(0, 2)))) * self.scale
        return x + rows.reshape(h.shape).permute(0, 3, 1, 2)


class CompactMemoryEncoder(nn.Module):
    """Encodes features [B,C,G,G], and mask and rasterised prompt box [B,2,4G,4G], to a memory map [B,N,M]."""

    def __init__(self) -> None:
        super().__init__()
        self.mask_downsampler = downsampler((2, 16, 64, WIDTH), kernel=3)
        self.feature_projection = nn.Conv2d(WIDTH, WIDTH, 1)
        self.fuser = nn.Sequential(CompactConvNeXtBlock(WIDTH), CompactConvNeXtBlock(WIDTH))
        self.out = nn.Conv2d(WIDTH, MEMORY, 1)

    def forward(self, features: Tensor, drawn: Tensor) -> Tensor:
        fused = self.fuser(self.feature_projection(features) + self.mask_downsampler(drawn))
        tokens: Tensor = self.out(fused).flatten(2).transpose(1, 2)
        return tokens


def downsampler(channels: tuple[int, int, int, int], kernel: int) -> nn.Sequential:
    """Return two convolutions of stride 2, each with norm and GELU, and a 1x1 projection.

    They map [B,c,4G,4G] to [B,C,G,G].
    """
    inputs, first, second, outputs = channels
    return nn.Sequential(
        nn.Conv2d(inputs, first, kernel, 2, (kernel - 1) // 2),
        LayerNorm2d(first),
        nn.GELU(),
        nn.Conv2d(first, second, kernel, 2, (kernel - 1) // 2),
        LayerNorm2d(second),
        nn.GELU(),
        nn.Conv2d(second, outputs, 1),
    )


def mlp(*widths: int) -> nn.Sequential:
    """Return linear layers of these widths with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def rotary_tables(head_width: int) -> tuple[Tensor, Tensor]:
    """Return the factors of axial rotation, two tables of [grid*grid,2,head_width/2].

    The first table multiplies pairs of values, the second the same pairs with their two values exchanged. The
    first half of the angles belongs to x, the second to y.
    """
    quarter = head_width // 4
    frequency = ROPE_BASE ** (-torch.arange(quarter) / quarter)
    token = torch.arange(GRID * GRID)
    x, y = token % GRID, torch.div(token, GRID, rounding_mode="floor")
    angle = torch.cat([x[:, None] * frequency, y[:, None] * frequency], -1)
    cosine, sine = angle.cos(), angle.sin()
    return torch.stack([cosine, cosine], 1), torch.stack([-sine, sine], 1)
