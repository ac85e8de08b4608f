"""The shipped bundle, opened; and copies of it to spoil."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline


@pytest.fixture(scope="session")
def shipped() -> Bundle:
    return default_bundle()


@pytest.fixture
def pipeline(shipped: Bundle) -> Iterator[OrtPipeline]:
    opened = OrtPipeline(shipped, threads=2)
    yield opened
    opened.close()


@pytest.fixture
def spoiled(shipped: Bundle, tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], None]], Path]:
    """A copy of the shipped bundle whose manifest went through a function."""

    def spoil(change: Callable[[dict[str, Any]], None]) -> Path:
        folder = tmp_path / "copy"
        shutil.copytree(shipped.folder, folder)
        manifest = json.loads((folder / "bundle.json").read_text())
        change(manifest)
        (folder / "bundle.json").write_text(json.dumps(manifest))
        return folder

    return spoil
