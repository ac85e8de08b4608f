"""The shares of the box head: what is recorded, and what is fitted to it."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch: scripts/setup_env --with-tests")

from efftam_ros.runtime.verify import DISC_BOX, moving_disc, picture
from training.__main__ import main
from training.box.fit import boxes_of_profiles, read, solve
from training.box.record import MAX_STEP, step_of

SIDE = 16


def profiles(logits: np.ndarray) -> np.ndarray:
    return np.stack([logits.max(axis=1), logits.max(axis=2)], axis=1)


def recording(path: Path, moved: float, frames: int = 8) -> None:
    """A followed body with soft edges, whose true box is ``moved`` of the way to the outer level."""
    logits = np.full((1, SIDE, SIDE), -3.0)
    logits[0, 5:11, 4:12] = 3.0
    logits[0, 4:12, 3:13] = np.maximum(logits[0, 4:12, 3:13], -0.6)
    outer, middle, _ = boxes_of_profiles(profiles(logits)[None])[0, 0]
    rng = np.random.default_rng(len(path.name))
    corner = rng.uniform(10, 60, 2)
    truth = middle + moved * (outer - middle) + np.tile(corner, 2)
    box = np.concatenate([truth[:2], truth[2:] - truth[:2]])
    tracker = np.concatenate([middle[:2] + corner, middle[2:] - middle[:2]])
    np.savez(
        path,
        profiles=np.tile(profiles(logits), (frames, 4, 1, 1)).reshape(frames, 4, 2, SIDE),
        row=np.array([0] + [2] * (frames - 1), np.int8),
        view=np.tile([*corner, 1.0, 1.0], (frames, 1)),
        truth=np.tile(box, (frames, 1)),
        published=np.tile(tracker, (frames, 1)),
        image_size=np.array([300, 200], np.int32),
    )


def test_the_shares_that_are_fitted_place_the_true_edges(tmp_path: Path, capsys) -> None:
    for number in range(9):
        recording(tmp_path / f"scene{'abcdefghi'[number]}.npz", moved=0.1 * number)
    assert main(["box", "fit", str(tmp_path), "--out", str(tmp_path / "shares.json")]) == 0
    targets = [target for path in sorted(tmp_path.glob("*.npz")) if (target := read(path)) is not None]
    shares = solve(targets)
    for target in targets:
        assert target.placed(shares.moved) == pytest.approx(target.truth, abs=0.4)
    rows = (line.split() for line in capsys.readouterr().out.splitlines())
    row = next(row for row in rows if row[:2] == [tmp_path.name, "9"])
    _, _, mask, tracker, placed, *_ = row
    assert mask == tracker
    assert float(placed) > float(tracker) + 0.02


def test_what_misses_the_target_or_was_not_followed_is_left_out(tmp_path: Path, capsys) -> None:
    recording(tmp_path / "a.npz", moved=0.5)
    z = dict(np.load(tmp_path / "a.npz"))
    z["row"][1:4] = -1
    z["truth"][5, :2] += 150
    z["truth"][6] = np.nan
    np.savez(tmp_path / "a.npz", **z)
    target = read(tmp_path / "a.npz")
    assert target is not None
    assert len(target.mask) == 2
    z["row"][1:] = -1
    np.savez(tmp_path / "a.npz", **z)
    assert read(tmp_path / "a.npz") is None
    assert main(["box", "fit", str(tmp_path)]) == 2
    assert "run record first" in capsys.readouterr().err


def test_a_recorded_target_can_be_fitted_to_and_is_not_recorded_again(tmp_path: Path) -> None:
    sequence, out = tmp_path / "clips" / "disc", tmp_path / "out"
    (sequence / "img").mkdir(parents=True)
    lines = []
    for number in range(6):
        cv2.imwrite(str(sequence / "img" / f"{number + 1:04d}.png"), picture(moving_disc(number)))
        lines.append(
            f"{DISC_BOX.x + 4 * number},{DISC_BOX.y + 2 * number},{DISC_BOX.width},{DISC_BOX.height}"
        )
    (sequence / "groundtruth_rect.txt").write_text("\n".join(lines) + "\n")
    command = ["box", "record", str(out), str(tmp_path / "clips"), "--images", "4", "--quiet"]
    assert main(command) == 0
    z = dict(np.load(out / "disc.npz"))
    assert z["profiles"].shape == (3, 4, 2, 48)  # every second image
    assert z["row"].tolist()[0] == 0
    assert (z["row"][1:] > 0).all()
    target = read(out / "disc.npz")
    assert target is not None
    assert target.mask == pytest.approx(target.truth, abs=6)
    before = (out / "disc.npz").stat().st_mtime_ns
    assert main(command) == 0
    assert (out / "disc.npz").stat().st_mtime_ns == before


@pytest.mark.parametrize(("length", "images", "step"), [(20, 24, 1), (48, 24, 2), (500, 24, MAX_STEP)])
def test_few_images_cover_a_video(length: int, images: int, step: int) -> None:
    assert step_of(length, images) == step
