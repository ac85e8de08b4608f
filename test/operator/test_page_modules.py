"""The page's modules that need no browser, under node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parent / "web"


def test_the_modules_under_node():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    done = subprocess.run([node, "--test", WEB], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
