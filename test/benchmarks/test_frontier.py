"""Recall over false claims: what counts, and the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.frontier import HEIGHT, MARGIN, WIDTH, Claim, Point, curve_of, drawn, point

RIGHT, WRONG, NONE = Claim(0.9, 0.8, 30.0), Claim(0.6, 0.0, 30.0), Claim(0.0, 0.0, 30.0)
ABSENT, GHOST = Claim(0.0, 0.0, 0.0), Claim(0.4, 0.0, 0.0)


@pytest.mark.parametrize(
    ("claims", "false", "recall"),
    [
        ([RIGHT, RIGHT, NONE, WRONG], 0.25, 0.5),
        ([RIGHT, ABSENT], 0.0, 1.0),
        ([RIGHT, GHOST], 0.5, 1.0),
        ([Claim(0.9, 0.35, 12.0)], 0.0, 1.0),  # a small target
        ([Claim(0.9, 0.35, 40.0)], 0.0, 0.0),  # neither right nor false
    ],
)
def test_recall_is_of_the_images_in_view_and_false_claims_are_of_all(claims, false, recall):
    assert point([claims], 0.0, 0.5) == Point(pytest.approx(false), pytest.approx(recall), 0.5)


def test_each_sequence_counts_the_same():
    assert point([[RIGHT] * 100, [WRONG]], 0.0, 0.0)[:2] == (0.5, 0.5)


def test_a_tracker_claims_less_the_higher_the_limit_of_its_score():
    curve = curve_of([[RIGHT, WRONG, GHOST, Claim(0.95, 0.9, 30.0)]])
    assert [one.false for one in curve] == sorted((one.false for one in curve), reverse=True)
    assert curve[0].recall == pytest.approx(2 / 3)
    assert curve[-1].false == 0.0


def test_the_picture_has_a_line_and_its_points_for_each_tracker():
    picture = ElementTree.fromstring(
        drawn({"ours": [Point(0.01, 0.8, 0.5)] * 3, "fear_xs": [Point(0.2, 0.7, 0.1)]})
    )
    names = [one.tag.rpartition("}")[2] for one in picture]
    assert (names.count("polyline"), names.count("circle")) == (2, 4)


@pytest.mark.parametrize("most", [0.05, 0.0437, 0.2, 0.07, 0.9])
def test_each_label_of_the_false_claims_stands_at_its_number_and_the_names_beside_the_curves(most: float):
    curve = [Point(0.0, 0.1, 0.9), Point(most, 0.8, 0.1)]
    texts = [one for one in ElementTree.fromstring(drawn({"ours": curve})) if one.tag.endswith("text")]
    bottom = max(float(one.get("y")) for one in texts if one.text == "0")
    labels = {float(one.text): float(one.get("x")) for one in texts if float(one.get("y")) == bottom}
    assert 5 <= len(labels) <= 11
    width = (WIDTH - 2 * MARGIN) / max(most, 0.05)
    assert all(x == pytest.approx(MARGIN + width * false, abs=0.51) for false, x in labels.items())
    (name,) = (one for one in texts if one.text == "this package")
    assert float(name.get("y")) > HEIGHT / 2
