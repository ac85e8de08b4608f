"""Sizes are judged before anything is sized by them: announced sizes, most pixels, most memory."""

from __future__ import annotations

import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bombs import png_bomb
from support.limited import MIB, peak_bytes, run_limited

from efftam_ros.core.errors import MAX_SHOWN, InputError, shown
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.images.headers import MAX_PIXELS, MAX_SIDE, check_size, coded_size
from efftam_ros.runtime.preprocess import MAX_SAMPLES, Preprocessor, fineness

SIZE = (61, 37)
PIXELS = np.random.default_rng(3).integers(0, 255, (SIZE[1], SIZE[0], 3), np.uint8)
WEBP_LOSSLESS = [cv2.IMWRITE_WEBP_QUALITY, 101]


def coded(suffix: str, pixels: np.ndarray = PIXELS, flags: list[int] | None = None) -> bytes:
    done, data = cv2.imencode(suffix, pixels, flags or [])
    assert done
    return data.tobytes()


def with_thumbnail() -> bytes:
    """A JPEG whose application segment holds another one of another size, as cameras write it."""
    whole, small = coded(".jpg"), coded(".jpg", PIXELS[:8, :8])
    segment = b"Exif\0\0" + small
    return whole[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + whole[2:]


def with_markers() -> bytes:
    """A JPEG whose size comes behind tables, markers without content and fill bytes."""
    whole = coded(".jpg")
    at = whole.index(b"\xff\xc4")  # a Huffman table
    table = whole[at : at + 2 + struct.unpack_from(">H", whole, at + 2)[0]]
    return whole[:2] + b"\xff\x01\xff\xd0\xff\xd7\xff\xff" + table + whole[2:]


FILES = {
    "JPEG": coded(".jpg"),
    "progressive JPEG": coded(".jpg", flags=[cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
    "JPEG with a thumbnail": with_thumbnail(),
    "JPEG with markers first": with_markers(),
    "PNG": coded(".png"),
    "PNG of one bit": coded(".png", PIXELS[..., 0] // 128 * 255, [cv2.IMWRITE_PNG_BILEVEL, 1]),
    "WebP": coded(".webp", flags=[cv2.IMWRITE_WEBP_QUALITY, 60]),
    "lossless WebP": coded(".webp", flags=WEBP_LOSSLESS),
    "TIFF": coded(".tiff"),
    "BMP": coded(".bmp"),
    "PPM": coded(".ppm"),
    "PGM": coded(".pgm", PIXELS[..., 0]),
}


@pytest.mark.parametrize("name", FILES)
def test_the_announced_size_is_the_decoded_one(name: str):
    decoded = cv2.imdecode(np.frombuffer(FILES[name], np.uint8), cv2.IMREAD_COLOR)
    assert coded_size(FILES[name]) == decoded.shape[1::-1] == SIZE


TIFF_ENTRIES = (256, 3, 1, 61), (257, 3, 1, 37), (256, 3, 1, 9)  # of a width told twice the larger counts


@pytest.mark.parametrize(
    "header",
    [
        b"MM\0*" + struct.pack(">IH", 8, 3) + b"".join(struct.pack(">HHIHxx", *e) for e in TIFF_ENTRIES),
        b"BM" + bytes(12) + struct.pack("<IHH", 12, *SIZE),
        b"BM" + bytes(12) + struct.pack("<Iii", 40, SIZE[0], -SIZE[1]),
        b"P5\n# 640 480\n61 37\n255\n",
        b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 60 | 36 << 14 | 1 << 28),  # with alpha
        b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 61 | 1 << 14, 37 | 1 << 14),  # scaled
    ],
    ids=[
        "TIFF, big-endian",
        "BMP of OS/2",
        "BMP from the top",
        "PGM with a comment",
        "lossless WebP",
        "WebP",
    ],
)
def test_what_surrounds_the_size_in_a_header_is_no_part_of_it(header: bytes):
    assert coded_size(header) == SIZE


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_ends_early_is_refused(name: str):
    for length in (0, 1, 3, 5) if name in ("PPM", "PGM") else (0, 1, 3, 12, 15):
        with pytest.raises(InputError):
            coded_size(FILES[name][:length])


@pytest.mark.parametrize("data", [b"", b"GIF89a" + bytes(50), b"\0" * 100, b"<svg/>"])
def test_what_has_no_known_format_is_refused_with_a_remedy(data: bytes):
    with pytest.raises(InputError, match="use jpeg or png"):
        coded_size(data)


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(FILES)), st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), max_size=8)
)
def test_no_damage_to_a_file_raises_anything_else(name: str, damage: list[tuple[int, int]]):
    data = bytearray(FILES[name])
    for at, value in damage:
        data[at % len(data)] = value
    refusal = ""
    try:
        check_size(*coded_size(bytes(data)))
    except InputError as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert len(refusal) < 300


def test_a_jpeg_of_empty_segments_is_given_up_early():
    with pytest.raises(InputError, match="truncated or damaged"):
        coded_size(b"\xff\xd8" + b"\xff\xe2\0\2" * 100_000 + FILES["JPEG"][2:])


def test_sizes_up_to_the_limits_pass_and_beyond_are_refused_with_the_parameter():
    check_size(8192, MAX_PIXELS // 8192)
    check_size(MAX_SIDE, 2)
    check_size(10, 10, 100)
    for size, said in (
        ((8193, 8192), rf"8193 x 8192 px.*at most {MAX_PIXELS}.*max_image_pixels"),
        *(((2, MAX_SIDE + 1), f"at most {MAX_SIDE}"), ((MAX_SIDE + 1, 2), f"at most {MAX_SIDE}")),
        *(((0, 5), "at least 1"), ((5, 0), "at least 1"), ((11, 10, 100), "at most 100 are read")),
    ):
        with pytest.raises(InputError, match=said):
            check_size(*size)


def test_a_bomb_is_refused_without_being_decoded(tmp_path: Path):
    bomb = png_bomb()
    assert len(bomb) < MIB
    (tmp_path / "bomb.png").write_bytes(bomb)
    code = """
import sys, types, numpy as np
from efftam_ros.core.errors import InputError
from efftam_ros.images.message import image_from_compressed
from efftam_ros.images.stills.folder import read_bgr
from pathlib import Path
data = Path(sys.argv[1]).read_bytes()
for read in (
    lambda: image_from_compressed(types.SimpleNamespace(data=data, format="png")),
    lambda: read_bgr(Path(sys.argv[1])),
):
    try:
        read()
    except InputError as refusal:
        assert "32000 x 32000 px" in str(refusal), refusal
    else:
        raise SystemExit("it was decoded")
"""
    done = run_limited(code, tmp_path / "bomb.png", address_space=4096 * MIB)
    assert peak_bytes(done) < 1024 * MIB


# Boxes that a person or a broken client may send, on an image of 640 x 480 px.
HUGE = {
    "1e9 px": "(-5e8, -5e8, 1e9, 1e9)",
    "1e300 px": "(-1e300, 0, 2e300, 100)",
    "pixels as shares": "(0, 0, 60 * 640, 60 * 480)",
    "a thread": "(0, 100, 1e7, 1)",
}


@pytest.mark.parametrize("box", HUGE.values(), ids=HUGE)
def test_no_box_makes_a_selection_take_much_memory(box: str):
    code = f"""
import numpy as np
from efftam_ros.core.geometry import Box
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.targets import TargetSet
from efftam_ros.core.types import Frame, Image, Prompt
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.opening import open_pipeline
image = Image.from_array(np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8))
targets = TargetSet(open_pipeline(PipelineConfig(threads=1)), TrackerConfig(view="window"))
selection = Prompt(box=Box(*map(float, {box})))
for i in range(3):
    track = targets.step(Frame(image, (i + 1) * 10**8), {{}} if i else {{0: selection}})[0].track
    # A window that searches for what was missed has 1.2 sides of the one that follows.
    assert max(track.view.extent) <= 1.2 * 1.5 * 640 * (1 + 1e-9), track.view
"""
    assert peak_bytes(run_limited(code, address_space=3072 * MIB)) < 400 * MIB


@pytest.mark.parametrize("extent", [2_000.0, 40_000.0, 1e9])
def test_samples_are_bounded_however_much_a_view_shows(extent: float):
    view = View.window(320, 240, extent, 192)
    assert fineness(view) * 192 <= MAX_SAMPLES
    Preprocessor(192, (0.5,) * 3, (0.2,) * 3)(Image.from_array(np.zeros((480, 640, 3), np.uint8)), view)


def test_up_to_6700_px_every_pixel_counts():
    for side in (192, 512, 1024):
        view = View.full(6700, 4000, side)
        assert fineness(view) * side >= 0.6 * 6700


def test_foreign_texts_are_cut_and_stay_on_one_line():
    assert shown("bgr8") == "'bgr8'"
    assert len(shown("x" * 10**6)) <= MAX_SHOWN + 5
    assert len(shown([1.5] * 10**4)) <= MAX_SHOWN + 5
    assert "\n" not in shown("a\nb")
    assert "\n" not in shown(np.zeros((9, 9)))
