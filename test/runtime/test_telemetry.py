"""onnxruntime reports nothing to anybody: no file appears in the user's home, no host is looked up.

From 1.31 on a bare import of onnxruntime writes a device id and a queue of events, and looks up its vendor's
host; the versions before do not, and then nothing here can fail.
"""

from __future__ import annotations

import os
import shutil
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
    "the back end": f"import efftam_ros.runtime.onnxruntime.cpu; {SESSION}",
    "a child": "import efftam_ros, subprocess, sys;"
    f"subprocess.run([sys.executable, '-c', {SESSION!r}], check=True)",
}
# Stands before the C library's resolver, for every thread of the process, and answers "no such host".
RESOLVER = """
#include <netdb.h>
#include <cstdio>
#include <cstdlib>
extern "C" int getaddrinfo(const char* name, const char*, const addrinfo*, addrinfo**) {
  if (FILE* file = std::fopen(std::getenv("LOOKUPS"), "a")) {
    std::fprintf(file, "%s\\n", name ? name : "");
    std::fclose(file);
  }
  return EAI_NONAME;
}
"""
# Events are sent in batches, the first soon after the import.
PATIENCE_S = 30.0


def run(code: str, home: Path, **environment: str) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    path = os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", code],
        env=kept | {"HOME": str(home), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | environment,
        check=True,
        timeout=100,
    )


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("case", IMPORTS)
def test_no_file_appears_under_the_users_home(case: str, tmp_path: Path):
    run(IMPORTS[case], tmp_path)
    assert files(tmp_path) == []


def test_the_command_leaves_no_file_either(tmp_path: Path):
    run("from efftam_ros.tools.cli import main; main(['doctor'])", tmp_path)
    assert files(tmp_path) == []


def test_whoever_wants_it_keeps_what_was_set(tmp_path: Path):
    run("import os, efftam_ros; assert os.environ['ORT_DISABLE_TELEMETRY'] == '0'", tmp_path,
        ORT_DISABLE_TELEMETRY="0")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["", "0"], ids=["as it comes", "switched on"])
def test_no_host_is_looked_up(setting: str, tmp_path: Path):
    """The second case shows that the look-up would be seen."""
    import onnxruntime

    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    if setting and tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 31):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} reports nothing")
    source, shim, lookups = tmp_path / "resolver.cpp", tmp_path / "resolver.so", tmp_path / "lookups"
    source.write_text(RESOLVER)
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(shim)], check=True)
    home = tmp_path / "home"
    home.mkdir()
    waiting = (
        f"import pathlib, time; end = time.monotonic() + {PATIENCE_S};"
        f"seen = pathlib.Path({str(lookups)!r}).exists\n"
        "while time.monotonic() < end and not seen(): time.sleep(0.2)"
    )
    given = {"ORT_DISABLE_TELEMETRY": setting} if setting else {}
    run(f"import efftam_ros; {SESSION}; {waiting}", home, LD_PRELOAD=str(shim), LOOKUPS=str(lookups), **given)
    assert lookups.exists() == bool(setting)
