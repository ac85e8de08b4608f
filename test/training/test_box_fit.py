"""The box's edges from masks at several levels: what is recorded, the cues, the shares that are fitted."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

pytest.importorskip("torch", reason="training needs torch: scripts/setup_env --with-tests")

from efftam_ros.core.policies.box_head import COMPARED, MAX_OFFSET, EdgeCues
from efftam_ros.runtime.preprocess import boxes_and_areas
from efftam_ros.runtime.verify import DISC_BOX, moving_disc, picture
from training.__main__ import main
from training.box.fit import read, solve
from training.box.placed import boxes_at_levels
from training.box.record import MOST_STEP, step_of

SIDE = 16


def profiles(logits: np.ndarray) -> np.ndarray:
    return np.stack([logits.max(axis=1), logits.max(axis=2)], axis=1)


def around(box: tuple[float, ...], outer: float = 4.0, inner: float = 4.0) -> np.ndarray:
    """The boxes of a mask whose edges are that much further out and in at the other levels."""
    edges, outward = np.array(box, float), np.array([-1.0, -1.0, 1.0, 1.0])
    return np.stack([edges + outer * outward, edges, edges - inner * outward])


class TestTheBoxesAtTheLevels:
    def test_cross_next_to_the_mask_and_end_at_the_border(self) -> None:
        """A body of logits 2 with an arm of -0.5 to the border at its right, and something apart from it."""
        logits = np.full((1, SIDE, SIDE), -4.0)
        logits[0, 6:10, 4:8] = 2.0
        logits[0, 7, 8:] = -0.5
        logits[0, 14, 0] = -0.5
        outer, middle, inner = boxes_at_levels(profiles(logits))[0]
        assert outer.tolist() == pytest.approx([16, 24, 4 * SIDE, 40])
        assert middle.tolist() == pytest.approx([4 * 4.1667, 4 * 6.1667, 4 * 8.3, 4 * 9.8333], abs=1e-3)
        assert inner.tolist() == pytest.approx([4 * 4.3333, 4 * 6.3333, 4 * 7.9, 4 * 9.6667], abs=1e-3)

    def test_are_none_for_an_empty_mask_and_all_there_for_a_faint_one(self) -> None:
        logits = np.full((2, SIDE, SIDE), -3.0)
        logits[1, 5:8, 5:8] = 0.2
        empty, faint = boxes_at_levels(profiles(logits))
        assert np.isnan(empty).all()
        assert (faint[:, 2:] > faint[:, :2]).all()

    @given(arrays.arrays(np.float32, (3, 8, 8), elements=st.floats(-20, 20, width=32)))
    def test_lie_around_and_within_that_of_the_mask_which_is_the_runtimes(self, logits: np.ndarray) -> None:
        found, (expected, areas) = boxes_at_levels(profiles(logits)), boxes_and_areas(logits)
        for boxes, box, area in zip(found, expected, areas, strict=True):
            if area == 0:
                assert np.isnan(boxes).all()
                continue
            outer, middle, inner = boxes
            assert middle == pytest.approx(box, abs=1e-3)
            assert (outer[:2] <= middle[:2]).all()
            assert (middle[:2] <= inner[:2]).all()
            assert (outer[2:] >= middle[2:]).all()
            assert (middle[2:] >= inner[2:]).all()
            assert (outer >= 0).all()
            assert (outer <= 32).all()

    @given(st.integers(0, 4), st.integers(0, 4))
    def test_move_with_the_mask(self, right: int, down: int) -> None:
        rows, columns = np.mgrid[:SIDE, :SIDE]
        disc = (4.0 - np.hypot(rows - 6, columns - 6))[None]
        moved = (4.0 - np.hypot(rows - 6 - down, columns - 6 - right))[None]
        shift = 4 * np.array([right, down, right, down])
        assert boxes_at_levels(profiles(moved)) == pytest.approx(boxes_at_levels(profiles(disc)) + shift)


class TestTheCues:
    def test_of_a_rotor_that_the_mask_leaves_out_lead_to_the_level_that_holds_it(self) -> None:
        """Drawn wider than the mask by what the outer level adds, and as high as the mask."""
        mask = (280.0, 185.0, 320.0, 215.0)
        place = EdgeCues(np.array([276.0, 185.0, 324.0, 215.0]), np.array(mask))
        place.compare(around(mask))
        level = place.at_level(around(mask))
        assert place.levels == pytest.approx((-1.0, 0.0), abs=1e-3)
        assert level.tolist() == pytest.approx([4, 0, 4, 0], abs=0.01)

    def test_of_a_dog_behind_a_gate_reach_below_the_bar_as_drawn(self) -> None:
        place = EdgeCues(np.array([100.0, 100, 160, 160]), np.array([100.0, 100, 160, 140]))
        prompt = place.as_drawn(np.array([200.0, 120, 230, 140]))
        assert prompt.tolist() == pytest.approx([0, 0, 0, 10])

    def test_never_lead_beyond_the_levels_or_a_size(self) -> None:
        mask = (100.0, 100, 140, 140)
        place = EdgeCues(np.array([0.0, 0, 400, 10]), np.array([200.0, 0, 210, 10]))
        place.compare(around(mask))
        level, prompt = place.at_level(around(mask)), place.as_drawn(np.array(mask))
        assert level.tolist() == pytest.approx([4, -4, 4, -4])
        assert prompt.tolist() == pytest.approx([40 * MAX_OFFSET, 0, 40 * MAX_OFFSET, 0])

    def test_come_from_the_first_images_because_the_target_may_come_closer(self) -> None:
        place = EdgeCues(np.array([0.0, 0, 24, 24]), np.full(4, np.nan))
        for _ in range(COMPARED):
            place.compare(around((0, 0, 20, 20)))
        before = place.levels
        place.compare(around((0, 0, 90, 90)))
        assert place.levels == before
        assert before == pytest.approx((-0.54, -0.54), abs=0.01)
        assert place.as_drawn(np.array([0.0, 0, 20, 20])).tolist() == [0] * 4


def recording(path: Path, moved: float, frames: int = 8) -> None:
    """A followed body with soft edges, whose true box is ``moved`` of the way to the outer level."""
    logits = np.full((1, SIDE, SIDE), -3.0)
    logits[0, 5:11, 4:12] = 3.0
    logits[0, 4:12, 3:13] = np.maximum(logits[0, 4:12, 3:13], -0.6)
    outer, middle, _ = boxes_at_levels(profiles(logits))[0]
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


@pytest.mark.parametrize(("length", "images", "step"), [(20, 24, 1), (48, 24, 2), (500, 24, MOST_STEP)])
def test_few_images_cover_a_video(length: int, images: int, step: int) -> None:
    assert step_of(length, images) == step
