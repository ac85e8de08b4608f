"""The house's rules: imports go one way, rclpy stays in ros/, every module says its job."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "efftam_ros"
ALLOWED = {
    "core": {"core"},
    "runtime": {"runtime", "core", "model"},  # model: only by the PyTorch baseline, see below
    "ros": {"ros", "runtime", "core", "msg", "srv"},
    "tools": {"tools", "runtime", "core", "export", "model", "ros"},
    "model": {"model", "core"},
    "export": {"export", "model", "core", "runtime"},
}
MODULES = sorted(p for part in ALLOWED for p in (PACKAGE / part).rglob("*.py"))
TORCH_BASELINE = ("torch_eager", "torch_modes", "torch_device", "torch_timing")
TRAINING = sorted((ROOT / "training").rglob("*.py"))  # beside the package: it imports, nothing imports it


def imports(path: Path) -> list[str]:
    """Every module that a file imports, also inside functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append(node.module or "")
    return found


def part_of(module: str) -> str | None:
    match = re.match(r"efftam_ros\.(\w+)", module)
    return match.group(1) if match else None


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    part = path.relative_to(PACKAGE).parts[0]
    for module in imports(path):
        assert module.split(".")[0] != "training", f"{part} must not import {module}"
        target = part_of(module)
        assert target is None or target in ALLOWED[part], f"{part} must not import {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_ros_is_imported_in_ros_alone_and_torch_where_it_belongs(path):
    part, name = path.relative_to(PACKAGE).parts[0], path.stem
    heads = {module.split(".")[0] for module in imports(path)}
    if part == "core":
        assert not heads & {"cv2", "onnxruntime", "torch", "rclpy", "av"}
    if part != "ros":
        assert "rclpy" not in heads or name in ("bench_node", "doctor")
    if part in ("ros", "runtime", "core"):
        assert "torch" not in heads or name in TORCH_BASELINE
        assert "model" not in {part_of(m) for m in imports(path)} or name in TORCH_BASELINE


@pytest.mark.parametrize("path", TRAINING, ids=lambda p: p.stem)
def test_training_knows_no_ros(path):
    assert not {part_of(module) for module in imports(path)} & {"ros", "msg", "srv"}
    assert "rclpy" not in {module.split(".")[0] for module in imports(path)}


def test_the_command_starts_without_heavy_imports():
    heavy = ("torch", "cv2", "av", "onnxruntime", "rclpy")
    code = f"import sys, efftam_ros.tools.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).is_file()]


def test_every_module_says_its_job_in_its_first_line():
    for path in MODULES + TRAINING:
        doc = ast.get_docstring(ast.parse(path.read_text()))
        assert doc, f"{path} has no docstring"
        assert doc.splitlines()[0].strip(), path


def test_no_large_file_but_the_bundle():
    for path in tracked_files():
        if "models" not in path.parts:
            assert path.stat().st_size < 3_000_000, path
