"""The procedural material on disk, written and packed once per session."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from training.material import Material

if any(importlib.util.find_spec(name) is None for name in ("torch", "onnx", "av")):
    collect_ignore_glob = ["test_*.py"]  # training is an optional extra: pip install -e .[train]


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of sources that `python -m training data` is given."""
    from training_helpers import write_source

    folder = tmp_path_factory.mktemp("source")
    write_source(folder)
    return folder


@pytest.fixture(scope="session")
def archive(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed material."""
    from training.material import pack_material

    path = tmp_path_factory.mktemp("packed") / "material.zip"
    pack_material(source, path)
    return path


@pytest.fixture(scope="session")
def material(archive: Path) -> Material:
    """The archive's training split."""
    from training.material import load_material

    return load_material(archive)
