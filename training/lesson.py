"""Feature distillation from a tracker's backbone while the network is trained to track.

A few thousand clips contain less visual variety than the footage that a tracking-trained backbone was trained
on. The stride-16 features are therefore kept aligned with the backbone's, through a linear map used only in
training. None of the backbone's weights are copied.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efftam_ros.core.errors import InputError
from efftam_workshop.model.compact.network import CompactTAM
from training.convolutional_graph import ConvolutionalGraph
from training.tensor_runner import TensorRunner

SHARE = 2  # one in this many of a step's images is compared


class Backbone:
    """An ONNX graph from ``image`` [1,3,h,w] RGB 0..255 to ``features`` [1,c,h/16,w/16]."""

    def __init__(self, path: Path, device: str = "cpu") -> None:
        """Raises InputError when there is no such file or, on a GPU, when it has other operators than
        `ConvolutionalGraph` knows."""
        if not path.is_file():
            raise InputError(f"there is no backbone {path} to distil from; name an ONNX file")
        self._session = TensorRunner(path) if device == "cpu" else None
        self._graph = None if device == "cpu" else ConvolutionalGraph(path).to(device)
        self._device = device

    def __call__(self, images: Tensor) -> Tensor:
        """Features of images [n,3,h,w], RGB 0..255; the answer is on the backbone's device."""
        if self._graph is not None:
            with torch.no_grad():
                features: Tensor = self._graph(images.to(self._device).float())
            return features
        assert self._session is not None
        one_by_one = images.float().cpu().split(1)
        return torch.cat([self._session({"image": image})["features"] for image in one_by_one])


class Lesson(nn.Module):
    """Compares the trunk's features of a step's images with the backbone's."""

    mean: Tensor
    deviation: Tensor
    image_mean: Tensor
    image_std: Tensor

    def __init__(self, network: CompactTAM, backbone: Backbone, first_images: Tensor) -> None:
        """``first_images``: RGB 0..255 [n,3,h,w], from which means and standard deviations are estimated."""
        super().__init__()
        wanted = backbone(first_images).cpu()
        self._backbone = backbone
        self.map = nn.Conv2d(network.image_encoder.neck16.in_channels, wanted.shape[1], 1)
        self.register_buffer("mean", wanted.mean((0, 2, 3), keepdim=True))
        self.register_buffer("deviation", wanted.std((0, 2, 3), keepdim=True).clamp(min=1e-4))
        spec = network.spec
        self.register_buffer("image_mean", torch.tensor(spec.image_mean).reshape(1, 3, 1, 1))
        self.register_buffer("image_std", torch.tensor(spec.image_std).reshape(1, 3, 1, 1))
        self._seen: list[tuple[Tensor, Tensor]] = []
        self._images: Tensor | None = None

    def attend(self, network: CompactTAM) -> None:
        """Record the inputs and features of this network's image encoder from now on, where gradients are
        enabled."""
        encoder = network.image_encoder
        encoder.register_forward_pre_hook(self._note_images)
        encoder.stages[encoder.taken[2]].register_forward_hook(self._note_features)

    def _note_images(self, _module: nn.Module, inputs: tuple[Tensor]) -> None:
        self._images = inputs[0].detach()

    def _note_features(self, _module: nn.Module, _inputs: object, features: Tensor) -> None:
        if torch.is_grad_enabled() and self._images is not None:
            self._seen.append((self._images[::SHARE], features[::SHARE]))

    def loss(self) -> Tensor:
        """Cosine distance, 0..2, over the images since the last call."""
        images, features = (torch.cat(values) for values in zip(*self._seen, strict=True))
        self._seen.clear()
        pictures = 255 * (images * self.image_std + self.image_mean)
        wanted = (self._backbone(pictures).to(features.device) - self.mean) / self.deviation
        return 1 - F.cosine_similarity(self.map(features), wanted, 1).mean()
