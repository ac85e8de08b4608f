"""`python -m simulation`: renders the clip that ships, and refuses what it does not know in one line."""

from __future__ import annotations

from itertools import islice

import pytest

pytest.importorskip("panda3d", reason="the rendered world needs panda3d: pip install panda3d")

from efftam_ros.images.video import open_video
from efftam_ros.tools.demo import CLIP
from simulation import clip
from simulation.__main__ import main


def test_the_clip_that_ships_is_what_the_command_renders(tmp_path, monkeypatch):
    monkeypatch.setattr(clip, "END_S", clip.BEGIN_S + 0.2)
    assert main(["clip", "--out", str(tmp_path)]) == 0
    rows = (tmp_path / "boxes.csv").read_text().splitlines()
    assert rows == (CLIP / "boxes.csv").read_text().splitlines()[:7]
    ours = [frame.bgr.astype(int) for frame in open_video(tmp_path / "video.mp4").frames()]
    shipped = [frame.bgr.astype(int) for frame in islice(open_video(CLIP / "video.mp4").frames(), 6)]
    assert len(ours) == 6
    for one, other in zip(ours, shipped, strict=True):
        assert abs(one - other).mean() < 5.0  # what the encoder leaves


@pytest.mark.parametrize("arguments", [["swim"], ["autopilot", "betaflight"], ["clip", "--size", "1"]])
def test_what_is_not_known_is_refused_in_one_line(arguments, capsys):
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
