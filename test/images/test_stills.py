"""Still pictures: cut JPEGs, data behind them, EXIF, several pictures in a file, other files in folders."""

from __future__ import annotations

import io
from contextlib import closing
from fractions import Fraction
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import av
import cv2
import numpy as np
import pytest
from PIL import Image as Pillow
from support.odd_videos import picture
from support.streams import mjpeg_server

from efftam_ros.core.errors import InputError
from efftam_ros.images.camera import Camera, open_source
from efftam_ros.images.message import ImageReader, image_from_compressed
from efftam_ros.images.pixels import to_bgr
from efftam_ros.images.stills.exif import orientation_of
from efftam_ros.images.stills.folder import read_bgr
from efftam_ros.images.stills.jpeg import jpeg_end, without_metadata
from efftam_ros.images.streams import frames
from efftam_ros.images.video import open_video

SIZE = (240, 320, 3)


def bgr(number: int = 0) -> np.ndarray:
    image = np.ascontiguousarray(picture(number))
    image[:60, :80] = (200, 30, 60)
    return image


def coded(number: int = 0, form: str = "JPEG", **more) -> bytes:
    out = io.BytesIO()
    options = {"quality": 95} if form == "JPEG" else {}
    Pillow.fromarray(bgr(number)[..., ::-1]).save(out, form, **options, **more)
    return out.getvalue()


def turned(orientation: int = 6) -> Pillow.Exif:
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "camera"
    return exif


def is_like(found: np.ndarray, number: int) -> bool:
    return found.shape == SIZE and np.abs(found.astype(int) - bgr(number)).mean() < 6


def read(path: Path, **more) -> tuple[list[np.ndarray], str, bool]:
    told: list[str] = []
    source = open_video(path, report=told.append, **more)
    images = [frame.bgr for frame in source.frames()]
    return images, "; ".join(filter(None, [source.note, *told])), source.is_whole


# --- Where a JPEG ends ---


@pytest.mark.parametrize(
    "more", [{}, {"progressive": True}, {"exif": turned()}, {"restart_marker_blocks": 4}]
)
def test_the_end_of_a_jpeg_is_found_whatever_follows_it(more: dict):
    data = coded(**more)
    for behind in (b"", bytes(9 * len(data)), b"X" * 3 * len(data), b"\xff" * 64, coded(1)):
        assert jpeg_end(data + behind) == len(data)
    for cut in (data[:-2], data[: len(data) // 2], data[: len(data) // 2] + coded(1), data[:3], b"", b"\xff"):
        assert jpeg_end(cut) is None
    assert is_like(cv2.imdecode(np.frombuffer(without_metadata(data), np.uint8), 1), 0)
    assert b"Exif" not in without_metadata(data)


def message(data: bytes, form: str = "jpeg") -> SimpleNamespace:
    stamp = SimpleNamespace(sec=1, nanosec=0)
    return SimpleNamespace(header=SimpleNamespace(stamp=stamp, frame_id="c"), format=form, data=data)


def test_data_behind_the_end_of_a_compressed_image_is_passed_over_and_a_cut_one_refused():
    data = coded()
    for behind in (b"X" * len(data), b"X" * 3 * len(data), bytes(9 * len(data)), coded(1)):
        assert is_like(to_bgr(image_from_compressed(message(data + behind))), 0)
    for cut in (data[: len(data) // 2], data[: len(data) // 2] + bytes(len(data))):
        with pytest.raises(InputError, match="truncated"):
            image_from_compressed(message(cut))


def cut_jpegs() -> tuple[list[bytes], list[int]]:
    """30 images; which of them are cut, one of them with an end put behind, one filled up with zeros."""
    parts = [coded(i) for i in range(30)]
    for i in (10, 11):
        parts[i] = parts[i][: len(parts[i]) // 2]
    parts[15] = parts[15][: len(parts[15]) // 2] + b"\xff\xd9"
    parts[20] = parts[20][: len(parts[20]) // 2] + bytes(4000)
    return parts, [10, 11, 15, 20]


def write_packets(file: Path, parts: list[bytes], rate: int = 15) -> None:
    with av.open(str(file), "w") as out:
        stream = out.add_stream("mjpeg", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuvj420p"
        for i, part in enumerate(parts):
            packet = av.Packet(part)
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, i, i, Fraction(1, rate)
            out.mux(packet)


@pytest.mark.parametrize("name", ["cut.avi", "cut.mkv", "cut.mov"])
def test_cut_jpegs_of_a_video_are_left_out_and_told(name: str, tmp_path: Path):
    parts, cut = cut_jpegs()
    write_packets(tmp_path / name, parts)
    told: list[str] = []
    source = open_video(tmp_path / name, report=told.append)
    found = {frame.index: frame.bgr for frame in source.frames()}
    assert sorted(set(range(30)) - set(found)) == cut
    assert all(is_like(image, i) for i, image in found.items())
    assert not source.is_whole
    assert "damaged or lost packets: 4" in told[0]


def test_cut_jpegs_of_an_http_camera_are_left_out_and_counted():
    parts, cut = cut_jpegs()
    with mjpeg_server(parts, 30) as address:
        with closing(Camera(address, 5.0)) as camera:  # opened again when the images are over
            seen = [frame.bgr for frame in islice(camera.frames(), 45)]
        assert len(seen) >= 5
        assert all(any(is_like(image, i) for i in set(range(30)) - set(cut)) for image in seen)
        assert camera.damaged >= 3


def test_a_cut_jpeg_of_a_folder_is_refused_by_name(tmp_path: Path):
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(coded(i))
    (tmp_path / "1.jpg").write_bytes(coded(1)[:9000])
    with pytest.raises(InputError, match=r"1\.jpg is not a readable image: .*cut off"):
        read(tmp_path)


# --- Metadata ---


def test_metadata_of_jpegs_in_a_video_are_not_needed(tmp_path: Path):
    """Of FFmpeg 8 they come with a kind of side data that PyAV does not know."""
    broken = b"\xff\xe1\x00\x20Exif\0\0" + b"MM" + b"\xff" * 22
    whole = coded(2)
    parts = [coded(0, exif=turned(1)), coded(1, exif=turned(6)), whole[:2] + broken + whole[2:], coded(3)]
    write_packets(tmp_path / "exif.avi", parts)
    images, _, is_whole = read(tmp_path / "exif.avi")
    assert [is_like(image, i) for i, image in enumerate(images)] == [True] * 4
    assert is_whole
    parts = [coded(i, exif=turned(6)) for i in range(4)]
    with mjpeg_server(parts, 20) as address, closing(Camera(address, 5.0)) as camera:
        assert next(camera.frames()).size == (320, 240)


def test_kinds_of_side_data_that_pyav_does_not_know_are_passed_over(tmp_path: Path):
    """A frame that has one, and a display matrix, as photographs do."""
    (tmp_path / "one.png").write_bytes(coded(form="PNG", exif=turned(6)))
    with av.open(str(tmp_path / "one.png")) as container:
        frame = next(container.decode(video=0))
        assert frames.orientation(frame, "x") == (True, False, True) or frame.rotation in (-90, 0)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_the_orientation_is_told_and_not_applied_in_files_folders_and_topics(
    form: str, orientation: int, tmp_path: Path
):
    data = coded(form=form, exif=turned(orientation))
    assert orientation_of(data) == orientation
    (tmp_path / "folder").mkdir()
    for i in range(2):
        (tmp_path / "folder" / f"{i}.{form.lower()}").write_bytes(data)
    single = tmp_path / f"one.{form.lower()}"
    single.write_bytes(data)
    for path, count in ((tmp_path / "folder", 2), (single, 1)):
        images, said, _ = read(path)
        assert [image.shape for image in images] == [SIZE] * count
        assert (f"orientation {orientation} is not applied" in said) == (orientation != 1)
    reader = ImageReader("compressed", None)
    got = reader.read(message(data, form.lower()), 0)
    assert to_bgr(got.image()).shape == SIZE
    assert (f"orientation {orientation} is not applied" in got.note) == (orientation != 1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_is_read_as_stored(orientation: int, tmp_path: Path):
    (tmp_path / "a.tif").write_bytes(coded(form="TIFF", tiffinfo={274: orientation}))
    assert np.array_equal(read_bgr(tmp_path / "a.tif"), bgr())


def test_an_orientation_in_broken_metadata_is_none():
    for data in (
        b"",
        b"\xff\xd8\xff\xe1",
        coded(exif=turned())[:40],
        b"II*\0\xff\xff\xff\xff",
        b"RIFF1234WEBP",
    ):
        assert orientation_of(data) == 1


# --- Several pictures in a file ---


def several(count: int = 6) -> list[Pillow.Image]:
    return [Pillow.fromarray(bgr(i)[..., ::-1]) for i in range(count)]


def write_several(file: Path) -> None:
    first, *others = several()
    options = {
        ".webp": {"duration": 200, "lossless": True},
        ".gif": {"duration": 200},
        ".png": {"duration": 200},
    }
    first.save(file, save_all=True, append_images=others, **options.get(file.suffix, {}))


@pytest.mark.parametrize("suffix", ["webp", "gif", "png", "tif"])
def test_all_pictures_of_a_file_are_read_as_a_video_and_in_a_folder(suffix: str, tmp_path: Path):
    if suffix == "webp" and not hasattr(cv2, "imreadanimation"):
        pytest.skip("OpenCV before 4.11 reads no animations")
    write_several(tmp_path / f"1.{suffix}")
    stamps = [frame.stamp_ns / 1e9 for frame in open_video(tmp_path / f"1.{suffix}").frames()]
    # A TIFF has no times.
    period_s = 1 / 30 if suffix == "tif" else 0.2
    assert stamps == pytest.approx([period_s * i for i in range(6)], abs=1e-3)
    images, said, is_whole = read(tmp_path / f"1.{suffix}", fps=10)
    assert [np.abs(image.astype(int) - bgr(i)).mean() < 25 for i, image in enumerate(images)] == [True] * 6
    assert (said, is_whole) == ("", True)
    cv2.imwrite(str(tmp_path / "2.png"), bgr(6))
    source = open_video(tmp_path)
    assert source.count == 7
    found = list(source.frames())
    assert [frame.index for frame in found] == list(range(7))
    assert np.array_equal(found[-1].bgr, bgr(6))
    assert [frame.index for frame in source.frames(4)] == [4, 5, 6]
    with pytest.raises(InputError, match="6 pictures"):
        read_bgr(tmp_path / f"1.{suffix}")


def test_an_animation_that_this_opencv_can_not_read_is_refused_with_the_remedy(monkeypatch, tmp_path: Path):
    write_several(tmp_path / "a.webp")
    monkeypatch.delattr(cv2, "imreadanimation", raising=False)
    with pytest.raises(InputError, match=r"6 pictures.*OpenCV.*4\.11"):
        read(tmp_path / "a.webp")


def test_16_bit_pages_have_one_range(tmp_path: Path):
    pages = [np.full((48, 64), 7500, np.uint16) + np.arange(64, dtype=np.uint16) * 8 for _ in range(3)]
    assert cv2.imwritemulti(str(tmp_path / "thermal.tif"), pages)
    images, _, _ = read(tmp_path / "thermal.tif")
    assert [image.shape for image in images] == [(48, 64, 3)] * 3
    assert np.ptp(images[0]) > 150


def test_a_thumbnail_in_a_tiff_is_no_page(tmp_path: Path):
    first, second = several(2)
    thumbnail = second.resize((40, 30))
    thumbnail.encoderinfo = {"tiffinfo": {254: 1}}
    first.save(tmp_path / "a.tif", save_all=True, append_images=[thumbnail])
    images, _, _ = read(tmp_path / "a.tif")
    assert [image.shape for image in images] == [SIZE]


def test_a_stereo_pair_is_one_picture(tmp_path: Path):
    first, second = several(2)
    first.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[second], quality=95)
    images, _, _ = read(tmp_path / "a.jpg")
    assert [is_like(image, 0) for image in images] == [True]


def test_jpegs_one_after_another_in_a_folder_are_refused_with_the_remedy(tmp_path: Path):
    (tmp_path / "0.jpg").write_bytes(coded(0) + coded(1))
    with pytest.raises(InputError, match="several JPEGs"):
        read(tmp_path)


def test_what_systems_leave_in_a_folder_is_passed_over_and_told(tmp_path: Path):
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(coded(i))
        (tmp_path / f"._{i}.jpg").write_bytes(b"\0\5\26\7" + bytes(100))
    (tmp_path / "Thumbs.db").write_bytes(bytes(100))
    images, said, is_whole = read(tmp_path)
    assert [is_like(image, i) for i, image in enumerate(images)] == [True] * 3
    assert is_whole
    assert "4 files are skipped" in said


@pytest.mark.parametrize("form", ["bayer_rggb8; png compressed ", "bayer_rggb8; jpeg compressed "])
def test_a_compressed_mosaic_is_demosaiced_by_its_encoding(form: str):
    colours = np.full((48, 64, 3), (40, 120, 220), np.uint8)
    mosaic = np.empty((48, 64), np.uint8)
    mosaic[::2, ::2], mosaic[1::2, 1::2] = colours[::2, ::2, 2], colours[1::2, 1::2, 0]
    mosaic[::2, 1::2], mosaic[1::2, ::2] = colours[::2, 1::2, 1], colours[1::2, ::2, 1]
    suffix = ".png" if "png" in form else ".jpg"
    data = cv2.imencode(suffix, mosaic, [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()
    found = to_bgr(image_from_compressed(message(data, form)))
    assert np.abs(found.astype(int) - colours)[4:-4, 4:-4].mean() < 12
    # Of colours, whatever they were made of.
    colour = cv2.imencode(".png", colours)[1].tobytes()
    for named in ("bayer_rggb8; png compressed bgr8", form, "mono8; png compressed "):
        assert np.array_equal(to_bgr(image_from_compressed(message(colour, named))), colours)


def test_a_16_bit_mosaic_is_reduced_and_demosaiced():
    data = cv2.imencode(".png", np.full((48, 64), 9000, np.uint16))[1].tobytes()
    image = image_from_compressed(message(data, "bayer_gbrg16; png compressed "))
    assert image.encoding == "bayer_gbrg8"


# --- Names ---


@pytest.mark.parametrize("name", ["12:30:00.mp4", "cam:1.mp4", "http:x.mp4", "file:x.mp4", "a b%20c.mp4"])
def test_a_file_that_exists_is_a_file_whatever_its_name(name: str, tmp_path: Path, monkeypatch):
    with av.open(str(tmp_path / "plain.mp4"), "w") as out:
        stream = out.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(4):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), "bgr24")))
        out.mux(stream.encode(None))
    (tmp_path / "plain.mp4").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for given in (name, f"./{name}", str(tmp_path / name)):
        assert len(list(open_source(given).frames())) == 4
        assert len(list(Camera(given, None).frames())) >= 1
