"""What makes another engine necessary: everything that it was built from, and for."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runtime.tensorrt.fake_tensorrt import make_fake

from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.api import DeviceFacts
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.tensorrt import engine_set
from efftam_ros.runtime.tensorrt.engine_set import EngineSet
from efftam_ros.runtime.tensorrt.library import Library
from efftam_workshop.export.tensorrt.builder import timing_cache_path

WEIGHTS = "network.weights"


@pytest.fixture
def folder(shipped: Bundle, tmp_path: Path) -> Path:
    """A copy of the shipped bundle with weights in a file beside the graphs."""
    copy = Path(shutil.copytree(shipped.folder, tmp_path / "bundle"))
    (copy / WEIGHTS).write_bytes(b"first weights")
    return copy


def keys(bundle: Bundle, library: Library, facts: DeviceFacts, precision: str = "fp16") -> list[Any]:
    engines = EngineSet(bundle, precision, library, facts, bundle.folder / "engines")
    return [engines.key(name) for name in GRAPHS]


def test_a_power_mode_that_changed_since_the_build_is_told(
    shipped: Bundle, library: Library, facts: DeviceFacts, stream: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """Its engines fit, but other kernels may be faster: the times measured before do not count either."""

    def board(mode: str) -> EngineSet:
        monkeypatch.setattr(engine_set, "power_mode", lambda: mode)
        return EngineSet(shipped, "fp16", library, facts, tmp_path)

    built = board("25W (1)")
    for module in shipped.graphs.keys() & set(GRAPHS):
        built.store.put(shipped.spec.name, built.key(module), b"engine", {"power_mode": "25W (1)"})
    told = {mode: board(mode).opener(stream).notice for mode in ("25W (1)", "", "MAXN (0)")}
    assert board("MAXN (0)").opener(stream, lambda module: b"engine").notice == "", "not the stored ones"
    assert told["25W (1)"] == told[""] == ""
    assert "built in power mode 25W (1), and the board is in MAXN (0)" in told["MAXN (0)"]
    assert f"efftam build {shipped.folder} --precision fp16 --force" in told["MAXN (0)"]
    assert board("MAXN (0)").plan("mask_decoder") == b"engine"
    built.store.put(shipped.spec.name, built.key(GRAPHS[0]), b"engine", {})  # of which nobody knows
    assert board("MAXN (0)").opener(stream).notice == ""
    caches = {timing_cache_path(tmp_path, library, facts, mode) for mode in told}
    assert len(caches) == 3


def test_every_part_counts(
    folder: Path, library: Library, facts: DeviceFacts, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Bundle.load(folder)
    assert keys(bundle, library, facts) == keys(Bundle.load(folder), library, facts)
    found = [keys(bundle, library, facts), keys(bundle, library, facts, "fp32")]
    others: list[dict[str, Any]] = [
        {"name": "another GPU"},
        {"compute_capability": (8, 9)},
        {"multiprocessors": 7},
        {"total_bytes": facts.total_bytes * 2},
    ]
    found += [keys(bundle, library, replace(facts, **other)) for other in others]
    found.append(keys(bundle, Library.of(make_fake("10.0.1", gpu)), facts))
    (folder / WEIGHTS).write_bytes(b"other weights")  # the graphs themselves are the same
    found.append(keys(Bundle.load(folder), library, facts))
    monkeypatch.setattr(engine_set, "__version__", "99.0.0")  # makes other FP16 graphs
    found.append(keys(Bundle.load(folder), library, facts))
    for number, one in enumerate(found):
        for other in found[:number]:
            assert not set(map(str, one)) & set(map(str, other))
    before = EngineSet(bundle, "fp16", library, facts, folder).key("prompt_encoder")
    monkeypatch.setitem(engine_set.AXES, "n", (1, 1, 512))
    assert EngineSet(bundle, "fp16", library, facts, folder).key("prompt_encoder") != before
