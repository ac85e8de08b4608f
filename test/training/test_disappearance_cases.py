"""Disappearances made of real clips: which cases there are, and that their truth is what the images show."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from support.clip import clip as demo_clip
from support.clip import widened, write_sequence

from efftam_ros.core.geometry import Box
from training.reacquisition.cases import KINDS, MAX_PER_CLIP, Case, Film, make_cases
from training.reacquisition.footage import HALVES, Footage, find_footage, half_of


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> list[Footage]:
    """Two wide clips of different scenes."""
    folder = tmp_path_factory.mktemp("clips")
    for name in ("north", "south"):
        write_sequence(folder / name, widened(demo_clip(120), mirrored=name == "south"))
    return find_footage([folder])


@pytest.fixture(scope="module")
def films(clips) -> dict[str, tuple[Case, Film, list[np.ndarray]]]:
    """One case of each kind with its images."""
    texture = clips[1].pictures([0])[0]
    found = {}
    for case in make_cases(clips[:1]):
        film = Film(case, texture)
        if case.kind not in found and film.disappearance is not None:
            found[case.kind] = (case, film, [picture for picture, _ in film])
    return found


def patch(picture: np.ndarray, box: Box) -> np.ndarray:
    """What a box shows, 24 x 24 px."""
    x0, y0, x1, y1 = (round(v) for v in box.edges())
    return cv2.resize(picture[max(y0, 0) : y1, max(x0, 0) : x1], (24, 24)).astype(float)


def test_the_half_depends_on_the_scene_alone():
    assert half_of("north") in HALVES
    assert {half_of(f"scene {i}") for i in range(20)} == set(HALVES)


def test_cases_are_the_same_in_every_run_and_of_all_kinds(clips):
    cases = make_cases(clips)
    assert [case.name for case in cases] == [case.name for case in make_cases(clips)]
    assert {case.kind for case in cases} == set(KINDS)
    assert len(cases) == 2 * MAX_PER_CLIP


def test_repeats_keep_the_first_cases_and_add_others_of_the_same_kinds(clips):
    first, more = make_cases(clips), make_cases(clips, repeats=3)
    assert more[: len(first)] == first
    assert len({case.name for case in more}) == len(more) == 3 * len(first)
    for kind in KINDS:
        assert sum(c.kind == kind for c in more) == 3 * sum(c.kind == kind for c in first)
    assert {(c.order, c.stamps_ns) for c in more[len(first) :]} != {(c.order, c.stamps_ns) for c in first}


@pytest.mark.parametrize("kind", KINDS)
def test_the_true_box_shows_what_it_shows_in_the_clip(films, kind):
    case, film, pictures = films[kind]
    frames = case.footage.pictures(case.order)
    compared = 0
    for index in (0, 5, case.first - 5, len(film) - 2):
        truth, own = film.truth[index], case.footage.box(case.order[index])
        if truth.share < 1 or truth.box is None or own is None:
            continue
        compared += 1
        difference = np.abs(patch(pictures[index], truth.box) - patch(frames[case.order[index]], own))
        assert difference.mean() < 12
    assert compared >= 2


def test_a_camera_that_turns_away_shows_nothing_of_the_target_and_comes_back(films):
    case, film, _ = films["turn"]
    one = film.disappearance
    assert all(film.truth[i].share == 0 for i in range(one.first, one.last + 1))
    width, height = film.size
    for i in range(one.first, one.last + 1):
        outline = film.truth[i].outline  # of a target that the camera shows turned: its corners are empty
        assert outline.clipped(width, height).area < 0.05 * outline.area
    assert film.truth[one.back].share > 0.5
    assert one.back - case.last < case.footage.fps


def test_an_occluder_hides_the_target_where_it_is(films):
    """The hidden place shows something else than the clip does there."""
    case, film, pictures = films["occluder"]
    one = film.disappearance
    frames = case.footage.pictures(case.order)
    for index in (one.first, (one.first + one.last) // 2, one.last):
        own = case.footage.box(case.order[index])
        truth = film.truth[index]
        assert truth.box is None
        if own is not None and truth.outline.area == truth.outline.clipped(*film.size).area:
            seen, hidden = patch(frames[case.order[index]], own), patch(pictures[index], truth.outline)
            assert np.abs(seen - hidden).mean() > 12


def test_a_gap_is_told_by_the_stamps_alone(films):
    case, film, pictures = films["gap"]
    steps = np.diff(case.stamps_ns) * 1e-9
    assert len(pictures) == len(case.stamps_ns)
    assert np.argmax(steps) == case.first - 1
    assert steps.max() == pytest.approx(case.hidden_s + 1 / case.footage.fps, abs=1 / case.footage.fps)
    assert film.disappearance.back == case.first  # the first image after the gap
