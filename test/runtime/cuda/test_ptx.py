"""The committed PTX: made from the committed sources, for every driver that we support."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.cuda.kernel_table import KERNEL_FOLDER, KERNELS, load_ptx

SCRIPT = Path(__file__).parents[3] / "scripts" / "build_ptx"
FILES = sorted({signature.file for signature in KERNELS.values()})


def build(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KERNEL_FOLDER, tmp_path / "kernels"))


@pytest.fixture
def nvrtc() -> None:
    """Skips where the one compiler whose output is committed is absent."""
    install = "needs NVRTC 12.2: pip install cuda-bindings nvidia-cuda-nvrtc-cu12==12.2.140"
    bindings = pytest.importorskip("cuda.bindings.nvrtc", reason=install)
    try:
        version = bindings.nvrtcVersion()[1:]
    except RuntimeError:
        version = None
    if version != (12, 2):
        pytest.skip(install)


@pytest.mark.usefixtures("nvrtc")
class TestTheBuild:
    def test_gives_the_committed_ptx_byte_for_byte(self, copy: Path) -> None:
        for path in [*copy.glob("*.ptx"), copy / "kernels.json"]:
            path.unlink()
        done = build("--folder", str(copy))
        assert done.returncode == 0, done.stderr
        made = {path.name: path.read_bytes() for path in copy.iterdir()}
        assert made == {path.name: path.read_bytes() for path in KERNEL_FOLDER.iterdir() if path.is_file()}

    def test_checks_the_committed_ptx_by_default(self) -> None:
        done = build("--check")
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize(
        ("name", "old", "new"),
        [
            ("masks.ptx", "Generated", "Made"),
            ("masks.cu", "? 255", "? 254"),
            ("kernels.json", "sm_80", "sm_90"),
        ],
    )
    def test_notices_any_change_and_writes_nothing_when_it_only_checks(
        self, copy: Path, name: str, old: str, new: str
    ) -> None:
        before = (copy / name).read_text()
        changed = before.replace(old, new)
        assert changed != before
        (copy / name).write_text(changed)
        done = build("--check", "--folder", str(copy))
        assert done.returncode == 1
        assert re.fullmatch(
            r"build_ptx: .*is not what the source gives; run scripts/build_ptx\n", done.stderr
        )
        assert (copy / name).read_text() == changed


class TestThePtx:
    @pytest.mark.parametrize("file", FILES)
    def test_is_of_the_version_and_target_that_every_supported_driver_reads(self, file: str) -> None:
        ptx = load_ptx(file).decode("ascii")
        assert re.findall(r"^\.version (.*)$", ptx, re.M) == ["8.2"]
        assert re.findall(r"^\.target (.*)$", ptx, re.M) == ["sm_80"]
        facts = json.loads((KERNEL_FOLDER / "kernels.json").read_text())[file]
        assert {key: facts[key] for key in ("nvrtc", "isa", "target")} == {
            "nvrtc": "12.2",
            "isa": "8.2",
            "target": "sm_80",
        }

    @pytest.mark.parametrize("file", FILES)
    def test_calls_nothing_and_keeps_nothing_in_local_or_shared_memory(self, file: str) -> None:
        """Also no double arithmetic, which small GPUs do slowly."""
        ptx = load_ptx(file).decode("ascii")
        assert not re.search(r"\.(local|shared|extern)\b|\bcall\b|\bbar\.|\.f64\b", ptx)


class TestLoading:
    @pytest.mark.parametrize("name", ["memory.ptx", "memory.cu"])
    def test_refuses_a_file_that_changed(self, copy: Path, name: str) -> None:
        (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
        with pytest.raises(InputError, match=rf"{name} has sha256 \w+\.\.\., .* names .*scripts/build_ptx"):
            load_ptx("memory", copy)
        assert load_ptx("masks", copy)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            *((name, None) for name in ("memory.ptx", "memory.cu", "kernels.json")),
            *(("kernels.json", text) for text in ("", "{}", '{"memory": {}}', "[1]", '{"memory": 3}')),
        ],
    )
    def test_refuses_a_missing_file_or_a_table_that_is_none(
        self, copy: Path, name: str, text: str | None
    ) -> None:
        (copy / name).unlink()
        if text is not None:
            (copy / name).write_text(text)
        with pytest.raises(InputError, match=r"no usable kernels for 'memory' in .*; install") as refusal:
            load_ptx("memory", copy)
        assert text is not None or name in str(refusal.value)
