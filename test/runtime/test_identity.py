"""What the identity network says of crops, and what is said where it can't be asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from support.stored_images import stored

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import BackendError
from efftam_ros.core.gallery import LEAST
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image
from efftam_ros.images.pixels import ENCODINGS
from efftam_ros.images.video import open_video
from efftam_ros.runtime.identity import GRAPH, MANIFEST, SHIPPED, Identity
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_ros.tools import cli
from efftam_ros.tools.demo import CLIP, TWIN

LAST = 60


@pytest.fixture(scope="module")
def identity() -> Identity:
    return Identity()


@pytest.fixture(scope="module")
def pictures() -> list[NDArray[np.uint8]]:
    """The first images of the demo's clip."""
    video = open_video(CLIP / "video.mp4")
    return [frame.bgr for frame, _ in zip(video.frames(), range(LAST), strict=False)]


@pytest.fixture(scope="module")
def boxes() -> list[Box]:
    rows = np.loadtxt(CLIP / "boxes.csv", delimiter=",", skiprows=1, usecols=(1, 2, 3, 4))
    return [Box(*map(float, row)) for row in rows[:LAST]]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_scene_has_nearly_the_same_vector_in_every_encoding(encoding, identity, pictures, boxes):
    picture = pictures[0][: pictures[0].shape[0] // 2 * 2, : pictures[0].shape[1] // 2 * 2]
    rows, bgr = stored(encoding, picture)
    image = Image(np.ascontiguousarray(rows), bgr.shape[1], bgr.shape[0], encoding)
    (vector,) = identity.describe(image, [boxes[0]])
    (expected,) = identity.describe(Image.from_array(bgr), [boxes[0]])
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)
    assert vector @ expected > 0.97


@pytest.mark.parametrize(
    ("width", "height", "filtered"), [(2.5, 2, cv2.INTER_AREA), (2.5, 0.3, cv2.INTER_LINEAR), (0.3, 0.5, 1)]
)
def test_the_network_is_shown_the_box_and_nothing_else(width, height, filtered, identity, pictures):
    """In units of its side. Areas are averaged where pixels are left out along both axes."""
    session = onnxruntime.InferenceSession(str(SHIPPED / GRAPH), providers=["CPUExecutionProvider"])
    box = Box(30, 40, round(width * identity.side), round(height * identity.side))
    left, top, right, bottom = map(int, box.edges())
    crop = cv2.resize(pictures[0][top:bottom, left:right], [identity.side] * 2, interpolation=filtered)
    (expected,) = session.run(None, {"crops": crop[None]})
    assert np.array_equal(identity.describe(Image.from_array(pictures[0]), [box]), expected)


def test_several_boxes_have_the_vectors_of_each_by_itself(identity, pictures, boxes):
    image = Image.from_array(pictures[0])
    both = identity.describe(image, [boxes[0], Box(5.0, 5.0, 300.0, 200.0)])
    assert (both.shape, both.dtype) == ((2, identity.size), np.float32)
    assert np.allclose(both[:1], identity.describe(image, [boxes[0]]), atol=1e-5)
    assert identity.describe(image, []).shape == (0, identity.size)


@pytest.mark.parametrize(
    "box", [Box(-50, 0, 40, 40), Box(9000, 0, 40, 40), Box(5, 5, 0, 9), Box(float("nan"), 1, 9, 9)]
)
def test_of_a_box_without_a_pixel_or_a_bad_image_nothing_is_said(box, identity, pictures, boxes):
    vectors = identity.describe(Image.from_array(pictures[0]), [box, boxes[0]])
    assert np.isnan(vectors[0]).all()
    assert np.isfinite(vectors[1]).all()
    rows = pictures[0].reshape(len(pictures[0]), -1)
    bad = Image(rows, pictures[0].shape[1], pictures[0].shape[0], "no such encoding")
    assert np.isnan(identity.describe(bad, [box, boxes[0]])).all()


def test_threads_get_the_same_vectors(identity, pictures, boxes):
    def described(number: int) -> bytes:
        return identity.describe(Image.from_array(pictures[number % 4]), [boxes[number % 4]]).tobytes()

    alone = [described(number) for number in range(4)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(described, range(40))) == alone * 10


def test_the_demos_car_is_like_itself_later_and_unlike_other_things(identity, pictures, boxes):
    first = identity.describe(Image.from_array(pictures[0]), [boxes[0]])[0]
    for number in (10, 20, 36, LAST - 1):
        assert identity.describe(Image.from_array(pictures[number]), [boxes[number]])[0] @ first > LEAST
    aside = [Box(b.x, b.y - 2 * b.height, b.width, b.height) for b in boxes[:1]]
    assert identity.describe(Image.from_array(pictures[0]), aside)[0] @ first < LEAST


def test_the_demos_two_cars_are_told_apart(identity, pictures, boxes):
    """They are rendered from one model; each is more like itself a few images later."""
    number, twin = TWIN[0], Box(*TWIN[1])
    now = identity.describe(Image.from_array(pictures[number]), [boxes[number], twin])
    (later,) = identity.describe(Image.from_array(pictures[number + 8]), [boxes[number + 8]])
    assert later @ now[0] > later @ now[1]


def without(folder: Path) -> str:
    (folder / GRAPH).unlink()
    return "missing"


def damaged(folder: Path) -> str:
    content = bytearray((folder / GRAPH).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / GRAPH).write_bytes(content)
    return "damaged"


def newer(folder: Path, number: int = 2) -> str:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"format": number}))
    return f"format {number}"


def older(folder: Path) -> str:
    return newer(folder, 0)


def another(folder: Path) -> str:
    (folder / MANIFEST).write_text("[]")
    return MANIFEST


@pytest.fixture(params=[without, damaged, newer, older, another], ids=lambda spoil: spoil.__name__)
def spoilt(request, tmp_path: Path) -> tuple[Path, str]:
    spoil: Callable[[Path], str] = request.param
    shutil.copytree(SHIPPED, tmp_path / "identity")
    return tmp_path / "identity", spoil(tmp_path / "identity")


def test_a_bad_file_is_one_error_with_what_mends_it(spoilt):
    folder, told = spoilt
    with pytest.raises(BackendError) as found:
        Identity(folder)
    assert told in found.value.reason
    assert str(folder) in found.value.reason
    assert "parameter identity" in found.value.remedy


def test_without_the_network_tracking_says_so_in_one_line_unless_it_is_off(spoilt, monkeypatch, capfd):
    folder, told = spoilt
    monkeypatch.setattr(Identity.__init__, "__defaults__", (folder,))
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(cli.main(["track", str(CLIP / "video.mp4"), "--box", "300,200,60,40", "--quiet"]))
    said = capfd.readouterr().err.strip()
    assert ended.value.code == 2
    assert told in said
    assert len(said.splitlines()) == 1
    pipeline = open_pipeline()
    try:
        assert open_targets(pipeline, TrackerConfig(identity=False))
    finally:
        pipeline.close()
