"""`efftam calibrate`: the model against generated boxes, and the command on footage with wrong boxes."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from test_sequences import write_own

from efftam_ros.core.errors import InputError
from efftam_ros.core.identity import Calibration
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.tools.cli import main
from efftam_workshop import calibrate
from efftam_workshop.calibrate import (
    Boxes,
    area_under_curve,
    check_carries_over,
    check_enough,
    confidence,
    fit,
    held_out_confidence,
    measured_boxes,
)
from efftam_workshop.eval.sequences import find_sequences

TRUE = Calibration(likeness=8.0, presence=0.5, quality=2.0, offset=-8.0, prior=0.0)


def drawn(count: int = 20_000, sequences: int = 20) -> Boxes:
    """Boxes whose rightness is drawn with the probability that `TRUE` gives them."""
    rng = np.random.default_rng(0)
    evidence = np.column_stack(
        [rng.uniform(0, 1, count), rng.uniform(-6, 6, count), rng.uniform(0.3, 1, count)]
    )
    right = rng.uniform(size=count) < confidence(TRUE, evidence)
    return Boxes(evidence, right, rng.integers(sequences, size=count))


def test_the_fit_finds_the_model_that_drew_the_boxes():
    found = fit(drawn())
    assert found.likeness == pytest.approx(8.0, rel=0.1)
    assert found.presence == pytest.approx(0.5, rel=0.1)
    assert found.offset + found.prior == pytest.approx(-8.0, rel=0.1)


def test_the_prior_is_that_of_the_footage_and_not_part_of_the_ratio():
    boxes = drawn()
    kept = np.flatnonzero(boxes.right | (np.arange(len(boxes.right)) % 4 == 0))
    rarer = boxes.of(np.isin(np.arange(len(boxes.right)), kept))
    assert fit(rarer).prior - fit(boxes).prior == pytest.approx(np.log(4), abs=0.1)
    assert fit(rarer).offset == pytest.approx(fit(boxes).offset, abs=0.5)


def test_rows_have_the_confidence_that_the_tracker_computes():
    likeness, presence, quality = 0.4, 0.75, 0.6
    row = np.array([[likeness, np.log(3), quality]])
    assert confidence(TRUE, row)[0] == pytest.approx(TRUE.confidence(likeness, presence, quality))


def test_held_out_confidence_is_reliable_where_sequences_are_alike():
    boxes = drawn()
    held_out = held_out_confidence(boxes)
    for one in calibrate.reliability(held_out, boxes.right):
        assert one.right == pytest.approx(one.confidence, abs=0.05)


def test_evidence_never_speaks_against_a_box():
    boxes = drawn()
    turned = boxes._replace(evidence=boxes.evidence * [1, 1, -1])
    found = fit(turned)
    assert found.quality == 0
    assert found.likeness == pytest.approx(8.0, rel=0.1)


def test_separable_boxes_give_bounded_weights():
    boxes = drawn()
    boxes = boxes._replace(right=boxes.evidence[:, 0] > 0.5)
    found = fit(boxes)
    assert area_under_curve(confidence(found, boxes.evidence), boxes.right) > 0.99
    assert 10 < found.likeness < 1000


@pytest.mark.parametrize(
    ("values", "right", "area"),
    [([0.1, 0.9], [False, True], 1.0), ([0.5, 0.5], [False, True], 0.5), ([0.9, 0.1], [False, True], 0.0)],
)
def test_the_area_under_the_curve_counts_ties_half(values, right, area):
    assert area_under_curve(np.array(values), np.array(right)) == area


def test_too_little_footage_is_refused_with_what_is_missing():
    few = drawn(300, 2)
    with pytest.raises(InputError) as refusal:
        check_enough(few)
    right, wrong = int(few.right.sum()), int((~few.right).sum())
    assert f"{right} right boxes of 2 sequences; 200 of 5" in str(refusal.value)
    assert f"{wrong} wrong boxes of 2 sequences; 30 of 5" in str(refusal.value)
    check_enough(drawn(2000, 5))


def test_a_model_that_tells_nothing_of_other_sequences_is_refused():
    """In half of the sequences the wrong boxes are the likest ones."""
    boxes = drawn()
    likeness = np.where(boxes.sequence % 2 == 0, boxes.evidence[:, 0], 1 - boxes.evidence[:, 0])
    turned = boxes._replace(evidence=np.column_stack([likeness, np.zeros((len(likeness), 2))]))
    with pytest.raises(InputError, match="20 sequences with wrong boxes"):
        check_carries_over(turned, held_out_confidence(turned))
    check_carries_over(boxes, held_out_confidence(boxes))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(default_bundle().folder, tmp_path / "bundle"))


@pytest.fixture
def footage(tmp_path: Path) -> Path:
    """Sequences whose truth leaves the square, on which the tracker stays, in the last four of 12 images."""
    rows = [f"{i},{40 + i},30,16,16" if i < 8 else f"{i},nan,nan,nan,nan" for i in range(12)]
    for name in ("car", "dog", "gull", "boat"):
        write_own(tmp_path / "footage" / name, rows, frames=12)
    return tmp_path / "footage"


def test_measured_boxes_are_right_where_the_truth_is_and_wrong_where_it_is_not(footage: Path):
    with closing(open_pipeline(threads=1)) as pipeline:
        boxes = measured_boxes(pipeline, find_sequences(footage), quiet=True)
    assert np.bincount(boxes.sequence, boxes.right).tolist() == [7] * 4  # the first box is given
    assert np.bincount(boxes.sequence, ~boxes.right).tolist() == [4] * 4
    likeness, presence, quality = boxes.evidence.T
    assert likeness.min() > 0.5
    assert (presence > 0).all()
    assert ((quality > 0) & (quality <= 1)).all()


def test_the_command_writes_a_calibration_that_the_bundle_opens_with(
    bundle: Path, footage: Path, monkeypatch, capsys
):
    monkeypatch.setattr(calibrate, "measured_boxes", lambda *_: drawn())
    picture = bundle.parent / "curve.png"
    assert main(["calibrate", str(bundle), str(footage), "--plot", str(picture)]) == 0
    written = json.loads((bundle / "bundle.json").read_text())["calibration"]
    assert written["sequences"] == ["boat", "car", "dog", "gull"]
    assert (written["right"] + written["wrong"], written["split"]) == (20_000, "all")
    calibration = Bundle.load(bundle).spec.calibration
    assert calibration is not None
    assert vars(calibration) == pytest.approx(vars(fit(drawn())), abs=1e-4)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "area under the curve" in capsys.readouterr().out


def test_footage_without_wrong_boxes_leaves_the_bundle_as_it_is(bundle: Path, footage: Path, capsys):
    before = (bundle / "bundle.json").read_bytes()
    assert main(["calibrate", str(bundle), str(footage / "car"), "--quiet"]) == 2
    assert "7 right boxes of 1 sequences" in capsys.readouterr().err
    assert (bundle / "bundle.json").read_bytes() == before


def test_a_split_takes_the_sequences_of_one_half_of_the_names(bundle: Path, footage: Path, capsys):
    halves = {name: calibrate.split_of(name) for name in ("boat", "car", "dog", "gull")}
    even = [name for name, half in halves.items() if half == "even"]
    assert main(["calibrate", str(bundle), str(footage), "--split", "even", "--quiet"]) == 2
    assert f"boxes of {len(even)} sequences" in capsys.readouterr().err


def test_a_calibration_of_another_network_is_refused_and_can_be_made_anew(
    bundle: Path, footage: Path, monkeypatch
):
    manifest = json.loads((bundle / "bundle.json").read_text())
    manifest["calibration"] = {"network": "0" * 64}
    (bundle / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"0{12}.*efftam calibrate"):
        Bundle.load(bundle)
    monkeypatch.setattr(calibrate, "measured_boxes", lambda *_: drawn())
    assert main(["calibrate", str(bundle), str(footage)]) == 0
    assert Bundle.load(bundle).spec.calibration is not None
