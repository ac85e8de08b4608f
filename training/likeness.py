"""Contrastive loss that makes the encoder's features discriminate the target from everything else.

A cell of a later image should have a high cosine with the target's mean features in the prompted image
exactly where the target is: not on look-alikes, on the background or on images of other clips. A search then
has a cheap similarity map (a product of unit vectors, without the decoder), and two views can be compared by
the cosine of their pooled features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SHARPNESS, MIDDLE = 12.0, 0.5  # logit of a cosine c: SHARPNESS * (c - MIDDLE)
# Coverage of a cell: less is background, more is target, in between is ignored.
MIN_COVER, MAX_COVER = 0.02, 0.5


def pooled(features: Tensor, masks: Tensor) -> Tensor:
    """Unit vectors [B,C] of the features [B,C,G,G], averaged under masks [B,4G,4G] 0..1."""
    cover = F.avg_pool2d(masks.unsqueeze(1), 4)
    return F.normalize((features * cover).sum((2, 3)), dim=1)


def likeness(templates: Tensor, features: Tensor) -> Tensor:
    """Cosines [B,T,G,G] of features [B,C,G,G] with unit vectors [T,C]."""
    return torch.einsum("bchw,tc->bthw", F.normalize(features, dim=1), templates)


def is_ranked_first(templates: Tensor, features: Tensor, masks: Tensor) -> Tensor:
    """[B] bool: whether the cell most similar to its own template overlaps the target [B,4G,4G]."""
    cosines = torch.einsum("bchw,bc->bhw", F.normalize(features, dim=1), templates).flatten(1)
    cover = F.max_pool2d(masks.unsqueeze(1), 4)[:, 0].flatten(1)
    return cover.gather(1, cosines.argmax(1, keepdim=True))[:, 0] > MAX_COVER


def likeness_loss(templates: Tensor, features: Tensor, masks: Tensor, valid: Tensor) -> Tensor:
    """Loss of one frame.

    Target cells and all others have equal total weight.

    Args:
        templates: [B,C], of the clips' prompted frames.
        masks: [B,4G,4G], 0..1 (empty: target absent).
        valid: [B,4G,4G] bool.
    """
    batch = len(templates)
    logits = SHARPNESS * (likeness(templates, features) - MIDDLE)
    cover = F.avg_pool2d(masks.unsqueeze(1), 4)[:, 0]
    known = F.avg_pool2d(valid.float().unsqueeze(1), 4)[:, 0] > 0.99
    own = logits[torch.arange(batch), torch.arange(batch)]
    # A target smaller than a cell is assigned to the cell that it covers most.
    most = cover.flatten(1).amax(1).clamp(min=MIN_COVER).reshape(-1, 1, 1)
    is_target = (cover >= torch.clamp(most, max=MAX_COVER)) & known
    is_other = (cover < MIN_COVER) & known
    others = ~torch.eye(batch, dtype=torch.bool, device=logits.device)
    wrong = torch.cat([F.softplus(own[is_other]), F.softplus(logits[others]).flatten()])
    # Weighted separately: the few places that resemble the target are the ones that mislead a search.
    rejected = (wrong * wrong.detach()).sum() / wrong.detach().sum().clamp(min=1e-6)
    found = F.softplus(-own[is_target])
    return rejected + (found.mean() if len(found) else rejected.new_zeros(()))
