"""`scripts/gpu_check` without Nsight Systems: CUDA calls counted through CUPTI."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tools_helpers import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import gpu_check


def test_the_newest_library_of_the_packages_is_found_or_none(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "TOOLKITS", str(tmp_path))
    for folder, found in ((packages, ["libcupti.so.13"]), (tmp_path, [])):
        monkeypatch.setattr(sys, "path", [str(folder)])
        assert [path.name for path in [gpu_check.find_cupti()] if path is not None] == found


def test_a_call_counts_when_it_begins_and_a_second_profiler_is_refused_until_the_first_ends(
    packages: Path,
) -> None:
    library = packages / "nvidia" / "cu13" / "lib" / "libcupti.so.13"
    for _ in range(2):
        with closing(gpu_check.CallCounter(library)) as counter:
            assert counter.counts == {"cuEventSynchronize": 1, "cuLaunchKernel": 2}
            with pytest.raises(RuntimeError, match="39"):
                gpu_check.CallCounter(library)


def test_waits_are_those_that_more_frames_add(tmp_path: Path) -> None:
    """As the driver reports them: a wait and an asynchronous copy in each frame, allocations at the start."""

    def run(title: str, command: list[str]) -> str:
        frames = int(command[command.index("--frames") + 1])
        calls = {"cuEventSynchronize": frames + 9, "cuMemcpyDtoHAsync_v2": 2 * frames, "cuMemAlloc_v2": 12}
        Path(command[3]).write_text(json.dumps(calls))
        return ""

    found = gpu_check.calls_per_frame(["--backend", "tensorrt"], tmp_path, run)
    assert found["counted_by"] == "CUPTI"
    assert found["waits_per_frame"] == 1
    assert found["allocations_per_frame"] == 0
    assert found["calls_per_frame"] == {"cuEventSynchronize": 1, "cuMemcpyDtoHAsync_v2": 2}
