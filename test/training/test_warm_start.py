"""Starting a network from a bundle with another encoder: heads are copied, necks fitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from export_helpers import compact_network
from lite0_helpers import published_state
from training_helpers import ground

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_workshop.export.onnx.graphs import build_graphs
from efftam_workshop.export.onnx.trace import Tracer
from efftam_workshop.export.onnx.weights import prepare
from efftam_workshop.model.loading import initialisers
from training.backbone import load_backbone
from training.warm_start import warm_start

SIDE = 192


def pictures(count: int) -> Iterator[np.ndarray]:
    """Colourful ones, so that there are many features to fit."""
    rng = np.random.default_rng(8)
    for number in range(count):
        noise = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        yield noise // 2 + ground(number, SIDE, SIDE, grey=35) * 3


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A network whose encoder the bundle below has: features of the strength that a trained trunk gives."""
    weights = tmp_path_factory.mktemp("lite0") / "weights.pth"
    torch.save(published_state(), weights)
    network = compact_network()
    encoder = network.image_encoder
    load_backbone(encoder, weights)
    for neck in (encoder.neck4, encoder.neck8, encoder.neck16):
        torch.nn.init.normal_(neck.bias, std=10.0)
    return prepare(network)


@pytest.fixture(scope="module")
def bundle(teacher, tmp_path_factory) -> Bundle:
    """The bundle that ships, with the teacher's encoder."""
    shipped = default_bundle()
    graph = next(graph for graph in build_graphs(teacher) if graph.name == "image_encoder")
    path = tmp_path_factory.mktemp("encoder") / "image_encoder.onnx"
    onnx.save_model(Tracer(teacher).trace(graph), path)
    graphs = {**shipped.graphs, "image_encoder": replace(shipped.graphs["image_encoder"], path=path)}
    spec = teacher.spec
    return replace(shipped, graphs=graphs, mean=spec.image_mean, std=spec.image_std)


@pytest.fixture(scope="module")
def started(teacher, bundle):
    """A network with the teacher's trunk after the warm start of all else, and what its necks explain."""
    network = compact_network()
    torch.manual_seed(1)
    for module in network.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
            module.reset_parameters()
    trunk = {k: v for k, v in teacher.image_encoder.state_dict().items() if not k.startswith("neck")}
    network.image_encoder.load_state_dict(trunk, strict=False)
    return network, warm_start(network, bundle, pictures(6))


def test_the_heads_are_the_bundles(started, bundle):
    stored = initialisers(graph.path for graph in bundle.graphs.values())
    heads = {k: v for k, v in started[0].state_dict().items() if not k.startswith("image_encoder.")}
    assert len(heads) > 100
    for name, value in heads.items():
        assert torch.equal(value, stored[name].reshape(value.shape)), name


def test_fitted_necks_give_what_the_bundles_encoder_gives(started, teacher):
    image = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        for ours, wanted in zip(started[0].image_encoder(image), teacher.image_encoder(image), strict=True):
            left = (ours - wanted).square().mean() / wanted.var((2, 3)).mean()
            assert left < 0.03


def test_a_bundle_of_another_width_is_refused_by_name(bundle, tmp_path):
    model = onnx.load(bundle.graphs["prompt_encoder"].path)
    tokens = next(tensor for tensor in model.graph.initializer if tensor.name == "mask_decoder.tokens")
    tokens.CopyFrom(onnx.numpy_helper.from_array(np.zeros((1, 6, 96), np.float32), tokens.name))
    path = tmp_path / "prompt_encoder.onnx"
    onnx.save_model(model, path)
    graphs = {**bundle.graphs, "prompt_encoder": replace(bundle.graphs["prompt_encoder"], path=path)}
    with pytest.raises(InputError, match=r"mask_decoder\.tokens does not fit"):
        warm_start(compact_network(), replace(bundle, graphs=graphs), pictures(1))
