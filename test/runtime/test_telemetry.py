"""onnxruntime reports nothing to anybody: no file appears in the user's home.

From 1.31 on a bare import of onnxruntime writes a device id and a queue of events there, which it sends to
its vendor's host; the versions before do not, and then nothing here can fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SESSION = (
    "import onnxruntime, efftam_ros.runtime.bundle as b;"
    "onnxruntime.InferenceSession(str(b.default_bundle().graphs['memory_encoder'].path),"
    " providers=['CPUExecutionProvider'])"
)
IMPORTS = {
    "the package": f"import efftam_ros; {SESSION}",
    "a module of it alone": f"import efftam_ros.core.geometry; {SESSION}",
    "the command": "from efftam_ros.tools.cli import main; main(['doctor'])",
    "the back end": f"import efftam_ros.runtime.onnxruntime.cpu; {SESSION}",
    "a child": "import efftam_ros, subprocess, sys;"
    f"subprocess.run([sys.executable, '-c', {SESSION!r}], check=True)",
}


def run(code: str, home: Path, **environment: str) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    path = os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", code],
        env=kept | {"HOME": str(home), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | environment,
        check=True,
        timeout=100,
    )


@pytest.mark.parametrize("case", IMPORTS)
def test_no_file_appears_under_the_users_home(case: str, tmp_path: Path):
    run(IMPORTS[case], tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_whoever_wants_it_keeps_what_was_set(tmp_path: Path):
    run("import os, efftam_ros; assert os.environ['ORT_DISABLE_TELEMETRY'] == '0'", tmp_path,
        ORT_DISABLE_TELEMETRY="0")  # fmt: skip
