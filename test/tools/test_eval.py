"""`efftam eval`: the scorer against trackers of known behaviour, and the command as a process."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from test_sequences import write_own
from tools_helpers import ROOT, assert_refused

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.images.source import VideoFrame
from efftam_ros.tools.cli import main
from efftam_workshop.eval.command import COLUMNS, FrameResult, Passes, groups, jittered, one_pass, spread
from efftam_workshop.eval.metrics import Scores, identities, mask_overlap, mean_scores, score
from efftam_workshop.eval.sequences import Sequence

PICTURE = np.zeros((20, 30, 3), np.uint8)


def sequence(boxes: list[list[float]], masks: list[np.ndarray] | None = None, name: str = "s") -> Sequence:
    frames = [VideoFrame(i, i * 10**8, PICTURE) for i in range(len(boxes))]
    mask = None if masks is None else masks.__getitem__
    return Sequence(name, np.array(boxes, float), lambda: iter(frames), mask)


class Constant:
    """Always answers the box it was started with, and a mask of the left half."""

    has_masks = True

    def answers(self, bgr, stamp_ns, firsts, want_mask):
        self.boxes = firsts or self.boxes
        mask = np.zeros((20, 30), bool)
        mask[:, :15] = True
        return [FrameResult(box, True, mask if want_mask else None) for box in self.boxes]


def passes(tracker, *sequences: Sequence):
    return one_pass(tracker, list(sequences), 0, lambda: None)


def test_a_pass_scores_what_the_tracker_says():
    absent = [math.nan] * 4
    (result,) = passes(Constant(), sequence([[0, 0, 10, 10], [5, 0, 10, 10], absent]))
    assert result.scores.ao == pytest.approx(1 / 3)
    assert result.scores.false_claims == 0.5
    assert math.isnan(result.scores.j)
    assert result.curve[:7].tolist() == [1.0] * 7


def test_masks_are_scored_where_the_truth_has_one_but_in_the_first_frame_which_was_given():
    full, empty = np.ones((20, 30), bool), np.zeros((20, 30), bool)
    left = np.arange(30) < np.full((20, 1), 15)
    for masks in ([full, full, empty], [left, full, full]):
        assert passes(Constant(), sequence([[0, 0, 30, 20]] * 3, masks))[0].scores.j == 0.5


def test_a_box_that_is_not_claimed_is_no_false_claim():
    """Of five frames after the first the target is in one, which is claimed as one other is."""
    here, absent = [0, 0, 10, 10], [math.nan] * 4
    truth = sequence([here, absent, here, absent, absent, absent])
    assert passes(Constant(), truth)[0].scores.false_claims == 4 / 5
    claims, unsure = itertools.cycle((True, False)), Constant()
    answers = unsure.answers
    unsure.answers = lambda *frame: [one._replace(measured=next(claims)) for one in answers(*frame)]
    assert passes(unsure, truth)[0].scores.false_claims == 1 / 5


def test_the_targets_of_a_video_are_scored_each_by_itself_and_their_id_switches_together():
    """Both stay where they start; the objects change places."""
    left, right = [0, 0, 10, 10], [20, 0, 10, 10]
    group = [sequence([left, left, right], name="s#1"), sequence([right, right, left], name="s#2")]
    result = Passes("x")
    for one, scored in zip(group, passes(Constant(), *group), strict=True):
        result.add(one, scored)
    assert [result.of(one.name).ao for one in group] == [0.5, 0.5]
    assert result.identities == {"s": (2, 2, 2)}
    assert result.record()["identities"]["s"] == {"targets": 2, "switches": 2, "another": 2}


def test_targets_of_one_video_with_boxes_for_different_frames_are_refused():
    with pytest.raises(InputError, match="targets of s"):
        groups([sequence([[0, 0, 9, 9]] * count, name=f"s#{count}") for count in (2, 3)], together=True)


def test_the_first_box_is_jittered_by_at_most_a_pixel_and_always_the_same():
    box = Box(10, 20, 30, 40)
    assert jittered(box, "car", 0) == box
    moved = [jittered(box, "car", repeat) for repeat in range(1, 6)]
    assert moved == [jittered(box, "car", repeat) for repeat in range(1, 6)]
    assert len({m.x for m in moved}) == 5
    for m in moved:
        assert np.abs(np.subtract(m.edges(), box.edges())).max() <= 1
    assert jittered(box, "bike", 1) != moved[0]
    tiny = [jittered(Box(0, 0, 1, 1), "x", repeat) for repeat in range(1, 20)]
    assert min(min(m.width, m.height) for m in tiny) >= 0.5 - 1e-9


def test_repeats_give_mean_and_spread():
    result = Passes("x")
    for shift in (0.0, 5.0):
        boxes = [[0, 0, 10, 10], [shift, 0, 10, 10]]
        result.add(sequence(boxes), *passes(Constant(), sequence(boxes)))
    assert result.of("s").ao == pytest.approx((1 + 1 / 3) / 2)
    assert (result.of("s").frames, result.mean.frames) == (1, 1)
    assert spread(result.repeats)["ao"] == pytest.approx(np.std([1, 1 / 3], ddof=1))
    assert math.isnan(spread(result.repeats[:1])["ao"])
    json.dumps(result.record(), allow_nan=False)


def test_the_command_scores_policies_and_views_side_by_side_and_writes_json_and_plot(efftam, tmp_path: Path):
    rows = [f"{i},{40 + i},30,16,16" for i in range(4)]
    masks = np.zeros((4, 72, 96), bool)
    for i in range(4):
        masks[i, 30:46, 40 + i : 56 + i] = True
    write_own(tmp_path / "data" / "one", rows, frames=4, masks=masks)
    write_own(tmp_path / "data" / "two", rows, frames=4)
    what = ("--policy", "default,samurai", "--view", "full,window", "--repeats", "2", "--threads", "1")
    result = efftam("eval", "data", *what, "--json", "scores.json", "--plot", "success.png")
    assert (result.returncode, result.stderr) == (0, "")
    names = ["default full", "default window", "samurai full", "samurai window"]
    summary = result.stdout[result.stdout.index("mean over 2 sequences") :].splitlines()
    assert all(any(line.startswith(name) for line in summary) for name in names)
    runs = json.loads((tmp_path / "scores.json").read_text())["runs"]
    assert [run["name"] for run in runs] == names
    for run in runs:
        assert set(run["sequences"]) == {"one", "two"}
        assert run["sequences"]["one"]["frames"] == 3
        assert (run["sequences"]["one"]["j"] is None, run["sequences"]["two"]["j"] is None) == (False, True)
        assert run["spread"]["ao"] >= 0
    assert cv2.imread(str(tmp_path / "success.png")).shape[2] == 3


def test_every_column_is_explained_in_the_help(capsys):
    assert main(["eval", "--help"]) == 0
    explained = " ".join(capsys.readouterr().out.partition("columns, each 0..1: ")[2].split())
    for column in ("+-", *COLUMNS.values(), "id switches", "on another"):
        assert re.search(rf"(^|[.;] ){re.escape(column)}[:,]", explained), column


def test_together_the_targets_of_a_video_are_followed_at_once(efftam, tmp_path: Path):
    write_own(tmp_path / "one", [f"{i},{40 + i},30,16,16" for i in range(4)], frames=4)
    further = ["frame,x,y,w,h", *(f"{i},{5 + i},5,20,20" for i in range(4))]
    (tmp_path / "one" / "boxes_2.csv").write_text("\n".join(further))
    write_own(tmp_path / "two", [f"{i},{40 + i},30,16,16" for i in range(4)], frames=4)
    # The second video has one target: those of the first are forgotten.
    result = efftam("eval", "one", "two", "--together", "--json", "scores.json")
    assert result.returncode == 0, result.stderr
    (run,) = json.loads((tmp_path / "scores.json").read_text())["runs"]
    assert set(run["sequences"]) == {"one#1", "one#2", "two"}
    assert run["sequences"]["one#1"]["ao"] > 0.5
    assert run["identities"] == {"one": {"targets": 2, "switches": 0, "another": 0}}
    assert "id switches" in result.stdout


def test_what_cannot_be_scored_is_one_line(efftam_here, tmp_path: Path):
    write_own(tmp_path / "one", ["0,1,1,9,9", "1,1,1,9,9", "2,1,1,9,9"])
    assert_refused(efftam_here("eval", "nope"), "nope is not a folder")
    assert_refused(efftam_here("eval", "one", "one"), "two sequences are called one")
    assert_refused(efftam_here("eval", "one", "--policy", "best"), "'best' is not one of default, samurai")
    assert_refused(efftam_here("eval", "one", "--repeats", "0"), "--repeats is 0")
    assert_refused(efftam_here("eval", "one", "--bundle", ROOT / "test"), "is not a bundle")


NAN = [math.nan] * 4


def test_numbers_by_hand():
    """Boxes of 10 x 20 px; frame 0 is given, frame 3 has no truth, frame 4 no answer, frame 5 is exact."""
    here = [0, 0, 10, 20]
    truth = np.array([here, here, here, NAN, here, here], float)
    predicted = np.array([[50, 50, 9, 9], [3, 8, 10, 20], [30, 0, 10, 20], here, NAN, here], float)
    result = score(truth, predicted)
    assert result.frames == 4
    overlap = (
        7 * 12 / (2 * 200 - 7 * 12)
    )  # 0.27, above the six thresholds 0, 0.05, ..., 0.25; 0 is above none
    assert result.ao == pytest.approx((overlap + 0 + 0 + 1) / 4)
    assert result.auc == pytest.approx((6 + 20) / 21 / 4)  # 1 is not above itself
    assert result.sr50 == 1 / 4
    assert result.precision == pytest.approx(2 / 4)  # errors 8.5 px, 30 px, infinite, 0
    assert result.norm_precision == pytest.approx((1 + 51) / 51 / 4)  # 0.5 is up to the last threshold alone
    assert result.false_claims == pytest.approx(2 / 5)  # frame 2 misses the target, frame 3 has none


def test_a_prediction_is_not_a_claim():
    """A coasting tracker that says so is wrong, but not falsely sure."""
    truth = np.array([[0, 0, 10, 10]] * 3, float)
    far = truth + [100, 0, 0, 0]
    assert score(truth, far).false_claims == 1
    assert score(truth, far, claimed=np.array([True, False, False])).false_claims == 0
    assert score(truth, far, claimed=np.array([True, False, False])).ao == 0


def test_nothing_to_score_is_an_error():
    with pytest.raises(ValueError, match="no frame after the first"):
        score(np.array([[0, 0, 1, 1], NAN]), np.array([[0, 0, 1, 1], NAN]))


def test_mask_overlap_counts_pixels():
    a = np.zeros((4, 4), bool)
    b = a.copy()
    a[:2], b[1:3] = True, True
    assert mask_overlap(a, b) == pytest.approx(4 / 12)
    assert mask_overlap(a, np.zeros_like(a)) == 0
    assert mask_overlap(np.zeros_like(a), np.zeros_like(a)) == 0


def track(*places: float) -> list[list[float]]:
    """A box of 10 x 10 px at these positions along x; NaN: none."""
    return [NAN if math.isnan(x) else [x, 0, 10, 10] for x in places]


HERE, THERE, NOWHERE = 0.0, 40.0, math.nan
APART = np.array([track(HERE, HERE, HERE, HERE), track(THERE, THERE, THERE, THERE)])


@pytest.mark.parametrize(
    ("first", "second", "switches", "another"),
    [
        ([HERE, HERE, HERE, HERE], [THERE, THERE, THERE, THERE], 0, 0),
        ([HERE, HERE, THERE, THERE], [THERE, THERE, HERE, HERE], 2, 2),  # exchanged
        ([HERE, THERE, THERE, THERE], [THERE, HERE, HERE, THERE], 2, 1),  # the second one came back
        ([HERE, THERE, THERE, THERE], [THERE, THERE, THERE, THERE], 0, 1),  # both on one: no object changes
        ([HERE, THERE, THERE, THERE], [THERE, NOWHERE, NOWHERE, NOWHERE], 1, 1),
        ([HERE, NOWHERE, NOWHERE, HERE], [THERE, 36.0, 44.0, 46.0], 0, 0),  # 46: overlap 0.25
    ],
)
def test_id_switches_by_hand(first, second, switches, another):
    assert identities(APART, np.array([track(*first), track(*second)])) == (2, switches, another)


def test_of_two_boxes_on_an_object_the_one_that_was_there_keeps_it():
    """The other one lies closer."""
    answers = np.array([track(HERE, 2.0, 2.0, 2.0), track(THERE, HERE, HERE, HERE)])
    assert identities(APART, answers) == (2, 0, 1)


def test_means_leave_out_what_is_unknown():
    one = Scores(0.5, 0.4, 0.3, 0.2, 0.1, math.nan, 0.0, 10)
    two = Scores(0.7, 0.6, 0.5, 0.4, 0.3, 0.8, 0.1, 20)
    mean = mean_scores([one, two])
    assert (mean.ao, mean.j, mean.frames) == (pytest.approx(0.6), 0.8, 30)
