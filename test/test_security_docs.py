"""What SECURITY.md promises is there: limits with their values, linked files, hashes of every pin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from efftam_ros.core.config import MAX_TEXT
from efftam_ros.core.crop import FollowingCrop
from efftam_ros.core.errors import MAX_SHOWN
from efftam_ros.core.policies.constants import MAX_TILES
from efftam_ros.core.policies.search import Sweep
from efftam_ros.core.types import MAX_POINTS
from efftam_ros.images.headers import MAX_PIXELS, MAX_SIDE
from efftam_ros.images.message import MAX_FRAME_ID
from efftam_ros.messages.fields import MAX_NORMALIZED
from efftam_ros.runtime.preprocess import MAX_SAMPLES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
HASHES = ROOT / "scripts" / "requirements-hashes-cp311.txt"


@pytest.mark.parametrize(
    "text",
    [
        f"{MAX_PIXELS // 2**20} M = 8192 x 8192",
        f"{MAX_SIDE} px",
        f"normalised sides up to {MAX_NORMALIZED:g}",
        f"{MAX_SAMPLES} samples along a side",
        f"{MAX_TILES} x {MAX_TILES} tiles",
        f"{FollowingCrop.WIDEST:g} longer sides",
        f"| {MAX_POINTS}, a box counts 2",
        f"{MAX_FRAME_ID} characters",
        f"{MAX_SHOWN} characters of an external text",
        f"{MAX_TEXT} characters",
    ],
)
def test_the_page_names_the_limits_that_the_code_has(text: str):
    assert text in PAGE


def test_the_search_for_a_target_of_a_pixel_keeps_to_the_limit_of_tiles():
    assert len(Sweep((8192, 100), 5.0, 192)) == MAX_TILES  # one row of tiles


def test_every_pin_has_a_hash_of_the_same_version():
    lines = [line for line in HASHES.read_text().splitlines() if line and not line.startswith("#")]
    entry = re.compile(r"([A-Za-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")
    found = {m[1].lower().replace("_", "-"): m[2] for m in map(entry.fullmatch, lines) if m}
    assert len(found) == len(lines)
    for line in (ROOT / "scripts" / "requirements-ros-jazzy.txt").read_text().splitlines():
        if line and not line.startswith("#") and "python_version <" not in line:
            name, version = line.split(";")[0].strip().split("==")
            assert found[name.lower().replace("_", "-")] == version, name
