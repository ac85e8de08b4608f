"""Contrastive loss that makes the encoder's features discriminate the target from everything else.

A cell of a later image should have a high cosine with the target's mean features in the prompted image
exactly where the target is: not on look-alikes, on the background or in images of other clips. Then a search
has a cheap map of similarity, a product of unit vectors without the decoder, and two views can be compared by
the cosine of their pooled features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SHARPNESS, MIDDLE = 12.0, 0.5  # a cosine c has the logit SHARPNESS * (c - MIDDLE)
# A cell with a smaller coverage is background, one with a larger coverage target; others are ignored.
MIN_COVER, MAX_COVER = 0.02, 0.5


def pooled(features: Tensor, masks: Tensor) -> Tensor:
    """Return unit vectors [B,C]: the features [B,C,G,G] averaged under the masks [B,4G,4G], values 0..1."""
    cover = F.avg_pool2d(masks.unsqueeze(1), 4)
    return F.normalize((features * cover).sum((2, 3)), dim=1)


def likeness(templates: Tensor, features: Tensor) -> Tensor:
    """Return the cosines [B,T,G,G] of features [B,C,G,G] with unit vectors [T,C]."""
    return torch.einsum("bchw,tc->bthw", F.normalize(features, dim=1), templates)


def is_ranked_first(templates: Tensor, features: Tensor, masks: Tensor) -> Tensor:
    """Return whether the cell most similar to the clip's own template is on the target: bool [B].

    ``templates`` [B,C], ``features`` [B,C,G,G], ``masks`` [B,4G,4G] of the target.
    """
    cosines = torch.einsum("bchw,bc->bhw", F.normalize(features, dim=1), templates).flatten(1)
    cover = F.max_pool2d(masks.unsqueeze(1), 4)[:, 0].flatten(1)
    return cover.gather(1, cosines.argmax(1, keepdim=True))[:, 0] > MAX_COVER


def likeness_loss(templates: Tensor, features: Tensor, masks: Tensor, valid: Tensor) -> Tensor:
    """Return the loss of one frame of each clip.

    Target cells and all others have equal total weight.

    Args:
        templates: [B,C], unit vectors of the targets in the clips' prompted frames.
        features: [B,C,G,G] of the frame.
        masks: [B,4G,4G], 0..1; empty if the target is absent.
        valid: [B,4G,4G], bool; other pixels are ignored.
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
    # Each wrong cell is weighted by its own loss, because the few places that resemble the target mislead a
    # search.
    rejected = (wrong * wrong.detach()).sum() / wrong.detach().sum().clamp(min=1e-6)
    found = F.softplus(-own[is_target])
    return rejected + (found.mean() if len(found) else rejected.new_zeros(()))
