"""Writing a bundle: whole or not at all, replaced only by another, weights in half precision when asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from export_helpers import compact_network

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle
from efftam_workshop.export.onnx.bundle import STEPS, export_bundle
from efftam_workshop.export.onnx.weights import prepare


def total_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def stop_at(step: str):
    def progress(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    return progress


def copied(bundle: Path, out: Path) -> Path:
    out.mkdir()
    for path in bundle.iterdir():
        (out / path.name).write_bytes(path.read_bytes())
    return out


def test_a_bundle_is_replaced_by_the_next_and_the_network_left_as_it_was(tmp_path, bundle):
    out = copied(bundle("compact"), tmp_path / "bundle")
    network = compact_network()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    steps: list[str] = []
    export_bundle(network, out, weights="float16", progress=steps.append)

    assert total_bytes(out) < 0.55 * total_bytes(bundle("compact"))
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    after = network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert len(steps) == STEPS
    assert (steps[0], steps[-1]) == ("image_encoder", "comparison")


def test_an_interrupted_export_leaves_the_old_bundle_whole(tmp_path, bundle):
    out = copied(bundle("compact"), tmp_path / "bundle")
    with pytest.raises(KeyboardInterrupt):
        export_bundle(compact_network(), out, progress=stop_at("comparison"))
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert Bundle.load(out).family == "compact"


def test_a_killed_export_leaves_nothing_that_loads(tmp_path):
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from export_helpers import compact_network\n"
        "from efftam_workshop.export.onnx.bundle import export_bundle\n"
        "die = lambda step: step == 'comparison' and os.kill(os.getpid(), signal.SIGKILL)\n"
        "export_bundle(compact_network(), Path(sys.argv[1]), progress=die)\n"
    )
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths + [os.environ.get("PYTHONPATH", "")])}
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "bundle")], env=environment, check=False
    )
    assert result.returncode == -signal.SIGKILL
    assert not (tmp_path / "bundle").exists()
    assert list(tmp_path.rglob("bundle.json")) == []


def test_other_files_are_never_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="holds other files and no bundle; name a new or empty folder"):
        export_bundle(compact_network(), tmp_path)
    with pytest.raises(InputError, match="is a file; name a folder"):
        export_bundle(compact_network(), tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_weight_beyond_float16_is_refused_by_name():
    network = compact_network()
    with torch.no_grad():
        network.no_memory[0, 5] = 1e5
    with pytest.raises(InputError, match=r"no_memory.* 100000.* 65504.* float32"):
        prepare(network, "float16")
    prepare(network, "float32")


def test_a_weight_that_is_not_a_number_is_refused_by_name():
    network = compact_network()
    with torch.no_grad():
        network.mask_decoder.tokens[0, 0, 0] = float("nan")
    with pytest.raises(InputError, match=r"weight mask_decoder\.tokens holds NaN or infinity"):
        prepare(network)
