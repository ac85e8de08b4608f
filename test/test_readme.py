"""Every command in the README exists, with the options that it is shown with."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
LINES = [
    re.split(r"\s{2,}#", line)[0].strip()
    for block in BLOCKS
    for line in re.sub(r"\\\n\s*", " ", block).splitlines()
    if line.strip() and not line.startswith("#")
]


def commands(start: str) -> list[str]:
    return [line for line in LINES if line.startswith(start)]


@pytest.mark.parametrize("line", commands("./scripts/") + commands("source "))
def test_scripts_are_there(line):
    path = line.replace("source ", "").split()[0]
    if path.startswith("./scripts"):
        assert (ROOT / path).is_file()
        assert (ROOT / path).stat().st_mode & 0o111
    else:
        assert path == ".venv/setup.bash"  # written by scripts/setup_env


@pytest.mark.parametrize("line", commands("efftam "))
def test_efftam_knows_the_command_and_its_options(line):
    _, command, *rest = shlex.split(line)
    done = subprocess.run(
        [sys.executable, "-m", "efftam_ros", command, "--help"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    for option in (word for word in rest if word.startswith("--")):
        assert re.search(rf"{option}\b", done.stdout), f"{command} has no {option}"


@pytest.mark.parametrize("line", commands("ros2 launch"))
def test_launch_files_declare_their_arguments(line):
    _, _, package, name, *arguments = shlex.split(line)
    text = (ROOT / "launch" / name).read_text()
    assert package == "efftam_ros"
    for argument in arguments:
        assert f'"{argument.split(":=")[0]}"' in text, argument


@pytest.mark.parametrize("line", commands("ros2 service call"))
def test_the_service_call_fits_the_interface(line):
    yaml = pytest.importorskip("yaml")
    _, _, _, service, kind, request = shlex.split(line)
    assert service == "/efftam_tracker/select_target"
    assert (ROOT / "srv" / f"{kind.split('/')[-1]}.srv").is_file()
    fields = (ROOT / "msg" / "TargetSelection.msg").read_text()
    for name in yaml.safe_load(request)["selection"]:
        assert re.search(rf"^\S+ {name}\b", fields, flags=re.M), name
