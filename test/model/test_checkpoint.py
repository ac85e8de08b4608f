"""Checkpoints: the official layout loads strictly, everything else is refused in one line that says what to
do."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the network needs torch: scripts/setup_env --with-tests")

import pickle

import torch

from efftam_ros.core.errors import InputError
from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS, Pooling
from efftam_workshop.model.loading import load_checkpoint, untrained


@pytest.fixture
def saved(tmp_path, golden_state):
    """Writes a changed copy of the golden ``ti`` state dict as a checkpoint."""

    def write(change=lambda state: None, size: str = "ti"):
        state = dict(golden_state(size))
        change(state)
        path = tmp_path / "checkpoint.pt"
        torch.save({"model": state}, path)
        return path

    return write


def refusal(path, name: str = "efficienttam_ti_512x512") -> str:
    with pytest.raises(InputError) as refused:
        load_checkpoint(path, name)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_there_are_eight_configurations():
    table = {
        c.name.removeprefix("efficienttam_"): (c.side, c.width, c.heads, c.pooling)
        for c in CONFIGURATIONS.values()
    }
    plain, one, two = Pooling
    assert table == {
        "ti": (1024, 192, 3, plain),
        "ti_1": (1024, 192, 3, one),
        "ti_2": (1024, 192, 3, two),
        "ti_512x512": (512, 192, 3, plain),
        "s": (1024, 384, 6, plain),
        "s_1": (1024, 384, 6, one),
        "s_2": (1024, 384, 6, two),
        "s_512x512": (512, 384, 6, plain),
    }


def test_an_unknown_configuration_is_refused_with_the_names():
    with pytest.raises(InputError, match=r"'efficienttam_xl'.*efficienttam_ti, .*efficienttam_s_512x512"):
        untrained("efficienttam_xl")


@pytest.mark.parametrize(("size", "parameters"), [("ti", 17_866_018), ("s", 34_055_842)])
def test_the_state_dict_is_the_official_one(size, parameters, golden_state):
    network = untrained(f"efficienttam_{size}_512x512")
    official = {name: tuple(tensor.shape) for name, tensor in golden_state(size).items()}
    assert {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()} == official
    assert sum(p.numel() for p in network.parameters()) == parameters


def test_loading_fills_the_network_and_the_tables_made_of_its_weights(saved, golden_network):
    network = load_checkpoint(saved(), "efficienttam_ti_512x512")
    golden = golden_network("ti_512x512")
    assert not network.training
    for (name, mine), (_, theirs) in zip(network.named_buffers(), golden.named_buffers(), strict=True):
        assert torch.equal(mine, theirs), name
    assert network.image_encoder.trunk.position.abs().sum() > 0


def test_missing_unexpected_and_misshapen_tensors_are_named(saved):
    def change(state):
        del state["no_obj_ptr"]
        state["backbone.extra"] = torch.zeros(3)
        state["mask_downsample.bias"] = torch.zeros(2)

    text = refusal(saved(change))
    assert "no_obj_ptr" in text
    assert "backbone.extra" in text
    assert "mask_downsample.bias: copying a param with shape torch.Size([2])" in text
    assert "efficienttam_ti_512x512" in text
    assert "size mismatch" in refusal(saved(size="s"))


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 truncated"])
def test_a_file_that_is_no_checkpoint(tmp_path, content):
    path = tmp_path / "wrong.pt"
    assert f"there is no checkpoint {path}" in refusal(path)
    path.write_bytes(content)
    assert "checkpoint" in refusal(path)


def test_a_pickle_with_code_is_not_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "made by the payload"), "w"))

    path = tmp_path / "payload.pt"
    path.write_bytes(pickle.dumps({"model": Payload()}, protocol=2))
    assert "tensors only" in refusal(path)
    assert not (tmp_path / "made by the payload").exists()


def test_a_bare_state_dict_is_refused_with_its_keys(tmp_path):
    path = tmp_path / "bare.pt"
    torch.save({"state_dict": {"a": torch.zeros(1)}}, path)
    text = refusal(path)
    assert "'state_dict'" in text
    assert "{'model': state_dict}" in text
