"""Initialises a network's heads from a bundle with a different image encoder.

Memory attention, prompt encoder, decoder and memory encoder are copied. The new encoder's necks are fitted by
least squares to give the outputs of the bundle's encoder for the same images. The inputs of the heads then
resemble those with which they were trained.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle
from efftam_workshop.model.compact.network import CompactTAM
from efftam_workshop.model.loading import initialisers
from training.tensor_runner import TensorRunner
from training.unroll import normalised

RIDGE = 1e-3  # ridge term, as a share of the mean feature variance


def warm_start(
    network: CompactTAM, bundle: Bundle, pictures: Iterable[NDArray[np.uint8]]
) -> dict[str, float]:
    """Fill the heads and necks of ``network``; return the explained share of variance for each neck.

    ``pictures``: images uint8 [S,S,3] RGB. Raises InputError if the bundle's heads do not fit.
    """
    copy_heads(network, bundle)
    encoder = TensorRunner(bundle.graphs["image_encoder"].path)
    fits = {"features": _Fit(), "features_s8": _Fit(), "features_s4": _Fit()}
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (bundle.mean, bundle.std))
    network.eval()
    with torch.inference_mode():
        for picture in pictures:
            image = torch.from_numpy(picture.transpose(2, 0, 1).copy()).unsqueeze(0)
            wanted = encoder({"image": (image.float() / 255 - mean) / std})
            x4, x8, x16, x32 = network.image_encoder.trunk(normalised(network, image))
            context = F.interpolate(x32, scale_factor=2.0, mode="nearest")
            fits["features"].add(torch.cat([x16, context], 1), wanted["features"])
            fits["features_s8"].add(x8, wanted["features_s8"])
            fits["features_s4"].add(x4, wanted["features_s4"])
    necks = network.image_encoder
    with torch.no_grad():
        _fill([necks.neck16, necks.neck32], fits["features"])
        _fill([necks.neck8], fits["features_s8"])
        _fill([necks.neck4], fits["features_s4"])
    return {name: fit.explained() for name, fit in fits.items()}


class _Fit:
    """Linear regression of maps [1,o,h,w] on maps [1,i,h,w], accumulated as sums over images."""

    def __init__(self) -> None:
        nothing = torch.zeros((), dtype=torch.float64)
        self._xx = self._xy = self._yy = self._y = nothing
        self._count = 0

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        x = inputs.flatten(2)[0].double()
        x = torch.cat([x, torch.ones_like(x[:1])])
        y = outputs.flatten(2)[0].double()
        self._xx = self._xx + x @ x.T
        self._xy = self._xy + x @ y.T
        self._yy = self._yy + (y * y).sum(1)
        self._y = self._y + y.sum(1)
        self._count += x.shape[1]

    def weights(self) -> Tensor:
        """Return the regression's weights [i+1, o]; the last row is the constant."""
        ridge = RIDGE * self._xx.diagonal().mean() * torch.eye(len(self._xx), dtype=torch.float64)
        ridge[-1, -1] = 0
        return torch.linalg.solve(self._xx + ridge, self._xy)

    def explained(self) -> float:
        w = self.weights()
        left = self._yy - 2 * (w * self._xy).sum(0) + (w * (self._xx @ w)).sum(0)
        total = self._yy - self._y**2 / self._count
        return float(1 - left.sum() / total.sum())


def _fill(necks: list[nn.Conv2d], fit: _Fit) -> None:
    """Distribute the fitted matrix over the convolutions ``necks``, whose outputs are added."""
    w = fit.weights().float()
    first = 0
    for index, neck in enumerate(necks):
        rows = w[first : first + neck.in_channels]
        neck.weight.copy_(rows.T.reshape(neck.weight.shape))
        assert neck.bias is not None
        neck.bias.copy_(w[-1] if index == 0 else torch.zeros_like(w[-1]))
        first += neck.in_channels


def copy_heads(network: CompactTAM, bundle: Bundle) -> None:
    """Copy all weights of ``bundle`` except its image encoder's. Raises InputError if they do not fit."""
    stored = initialisers(graph.path for graph in bundle.graphs.values())
    state = network.state_dict()
    for name, like in state.items():
        if not name.startswith("image_encoder."):
            value = stored.get(name)
            if value is None or value.numel() != like.numel():
                raise InputError(
                    f"bundle {bundle.folder} can't start {network.spec.name}: {name} does not fit"
                )
            state[name] = value.reshape(like.shape)
    network.load_state_dict(state)
