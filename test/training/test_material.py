"""Packing and loading the training material: the split, what never enters, terms, and pixels as they were."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from training_helpers import (
    BOX_ONLY,
    BRIGHT,
    NEVER_TRAINED_ON,
    bright_footage,
    bright_photograph,
    plate,
    write_aerial,
)

from efftam_ros.core.errors import InputError
from training.material import (
    DAVIS_TRAINED_ON,
    Photograph,
    is_open,
    load_material,
    objects_of,
    pack_material,
    split_of,
)


@pytest.fixture(scope="module")
def index(archive) -> list[dict[str, str]]:
    with zipfile.ZipFile(archive) as packed:
        return json.loads(packed.read("index.json"))


def damaged(archive: Path, folder: Path, change) -> Path:
    """A copy of the archive whose bytes went through ``change``."""
    copy = folder / "damaged.zip"
    copy.write_bytes(change(archive.read_bytes()))
    return copy


def refusal(path: Path, *arguments) -> str:
    """The one line that load_material refuses with."""
    with pytest.raises(InputError) as refused:
        load_material(path, *arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# The split


def test_about_a_tenth_of_the_groups_is_held_out():
    held_out = sum(split_of(f"group {number}") == "validation" for number in range(3000))
    assert 240 <= held_out <= 360


def test_items_of_one_group_lie_on_one_side(index):
    sides, sizes = defaultdict(set), defaultdict(int)
    for item in index:
        sides[item["type"], item["group"]].add(item["split"])
        sizes[item["type"], item["group"]] += 1
    assert all(len(side) == 1 for side in sides.values())
    assert max(sizes.values()) >= 3  # there were groups to tear apart
    assert {item["split"] for item in index} == {"train", "validation"}


def test_numbered_cut_outs_and_colours_of_a_mesh_are_one_group(index):
    groups = defaultdict(set)
    for item in index:
        if item["type"] == "cutout":
            groups[item["group"]].add(Path(item["file"]).stem)
    several = sorted(len(members) for members in groups.values() if len(members) > 1)
    assert several == [3, 3, 3, 3]  # three stamps and three colours, on either side


# What never enters


def test_sequences_for_validation_and_box_only_ones_never_enter_the_archive(source, archive):
    with zipfile.ZipFile(archive) as packed:
        stems = {Path(name).stem for name in packed.namelist() if name.startswith("footage/")}
    for name in (*NEVER_TRAINED_ON, BOX_ONLY):
        assert (source / "sequences" / name).is_dir()  # it was there to be taken
        assert name not in stems
    assert (source / "sequences_train" / "boxes_alone").is_dir()
    assert "boxes_alone" not in stems
    assert set(DAVIS_TRAINED_ON) <= stems


# Terms


OPEN = ("CC0-1.0", "CC-BY-4.0", "CC BY-SA 3.0", "MIT", "GPL-2.0-or-later", "public domain")
CLOSED = ("", "as found", "research use", "CC BY-NC 4.0", "CC-BY, research use only", "MIT code, no licence")


@pytest.mark.parametrize("terms", OPEN + CLOSED)
def test_other_and_unknown_terms_count_as_research(terms):
    assert is_open(terms) == (terms in OPEN)


def test_open_data_only_leaves_out_what_is_for_research(archive, index):
    everything, some = load_material(archive), load_material(archive, open_only=True)
    closed = {Path(item["file"]).stem for item in index if item["use"] == "research"}
    assert any(name.startswith("duck") for name in closed)
    assert any(name.startswith("goose") for name in closed)  # unknown terms
    assert not closed & {sprite.name.split("#")[0] for sprite in some.sprites}
    assert {clip.name for clip in some.footage} == set(DAVIS_TRAINED_ON)
    assert [photograph.name for photograph in some.photographs] == ["single_7"]
    assert closed & {sprite.name for sprite in everything.sprites}
    assert {"street", "street_10"} <= {clip.name for clip in everything.footage}


# Pixels


def test_a_cut_out_comes_back_as_it_was_in_rgb_with_straight_alpha(material):
    blue = next(sprite for sprite in material.sprites if sprite.name.endswith("blue_1"))
    assert blue.kind == "render_aerial"
    assert np.array_equal(blue.rgba[..., 3], plate((20, 40, 230))[..., 3])
    assert blue.rgba[-1, -1].tolist() == [20, 40, 230, 255]


def test_a_photograph_comes_back_with_its_labels(material):
    photograph = next(p for p in material.photographs if p.name == "single_7")
    made = bright_photograph()
    assert np.array_equal(photograph.rgb, made.rgb)
    assert np.array_equal(photograph.labels, made.labels)


def test_footage_comes_back_frame_by_frame_with_its_masks(material):
    made, clip = bright_footage(), next(clip for clip in material.footage if clip.name == "street_10")
    assert clip.scene == "street"
    assert len(clip.frames) == len(clip.tracks[0]) == len(made.frames)
    for frame, mask, wanted in zip(clip.frames, clip.tracks[0], made.tracks[0], strict=True):
        assert np.array_equal(mask, wanted)
        assert frame[mask > 0].mean() > 0.9 * BRIGHT
        assert frame[mask == 0].mean() < 40


def test_whole_objects_of_a_photograph_become_cut_outs():
    rgb = np.full((100, 120, 3), 50, np.uint8)
    labels = np.zeros((100, 120), np.uint8)
    labels[10:40, 10:50] = 1
    labels[60:100, 60:100] = 2  # cut by the border
    labels[50:54, 10:14] = 3  # too small
    labels[10:40, 60:100] = 255  # ignored
    rgb[10:40, 10:50] = (200, 100, 0)
    (cut,) = objects_of(Photograph(rgb, labels, "photo"))
    assert (cut.name, cut.kind) == ("photo#1", "real")
    assert cut.rgba.shape == (30, 40, 4)
    assert np.unique(cut.rgba.reshape(-1, 4), axis=0).tolist() == [[200, 100, 0, 255]]


def test_loading_counts_what_packing_counted(source, tmp_path):
    counts = pack_material(source, tmp_path / "m.zip")
    for side in ("train", "validation"):
        material = load_material(tmp_path / "m.zip", side)
        assert len(material.backdrops) == counts[f"backdrop {side}"] == 3
        assert len(material.footage) == counts[f"footage {side}"]
        assert len(material.photographs) == counts.get(f"photograph {side}", 0)
        whole = sum(len(list(objects_of(photograph))) for photograph in material.photographs)
        assert len(material.sprites) == counts[f"cutout {side}"] + whole
        assert f"{len(material.sprites)} cut-outs" in material.summary()


# Aerial material, where there is some


@pytest.fixture(scope="module")
def aerial(source, tmp_path_factory) -> Path:
    """An archive of the same sources and the aerial folder."""
    folder = tmp_path_factory.mktemp("aerial")
    copy = shutil.copytree(source, folder / "source")
    write_aerial(copy / "aerial")
    pack_material(copy, folder / "material.zip")
    return folder / "material.zip"


def test_aerial_material_is_trained_on_and_validates_nothing(archive, aerial):
    before, after = load_material(archive, "validation"), load_material(aerial, "validation")
    assert before.summary() == after.summary()
    for one, other in zip(before.sprites + before.backdrops, after.sprites + after.backdrops, strict=True):
        assert one.name == other.name
    before, after = load_material(archive), load_material(aerial)
    assert len(after.backdrops) == len(before.backdrops) + 2
    assert {clip.name for clip in after.footage} - {clip.name for clip in before.footage} == {
        "uav_quay_1",
        "uav_quay_2",
    }
    assert {clip.scene for clip in after.footage} >= {"uav_quay"}


@pytest.mark.parametrize(
    ("name", "fault"), [("vans.tar", "vans.tar"), ("photographs_vehicles/masks.tar", "masks.tar")]
)
def test_a_missing_tar_is_refused_by_name(source, tmp_path, name, fault):
    copy = shutil.copytree(source, tmp_path / "source")
    write_aerial(copy / "aerial")
    (copy / "aerial" / name).unlink()
    with pytest.raises(InputError, match=fault):
        pack_material(copy, tmp_path / "material.zip")


# What goes wrong


def test_no_archive_is_refused_with_what_makes_one(tmp_path):
    assert "python -m training data" in refusal(tmp_path / "none.zip")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"no archive at all",
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content[:1000] + bytes(2000) + content[3000:],
    ],
    ids=["text", "cut off", "empty", "overwritten"],
)
def test_a_damaged_archive_is_refused_by_name(archive, tmp_path, change):
    path = damaged(archive, tmp_path, change)
    line = refusal(path)
    assert str(path) in line
    assert "python -m training data" in line
