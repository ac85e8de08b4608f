"""What the preprocessing kernel reads from memory, counted where every load of a byte is a call."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.images.encodings import ENCODINGS
from efftam_ros.runtime.cuda.kernel_table import KERNEL_FOLDER
from efftam_ros.runtime.cuda.module import THREADS, TILE
from efftam_ros.runtime.cuda.preprocess_params import PreprocessParameters

SIDE = 512
COUNTER = """\
#include <unordered_set>
#include "shim.hpp"
static unsigned long long loads, sectors;
static std::unordered_set<std::uintptr_t> of_block;
static unsigned last_x, last_y;
static unsigned char *marks;
static const unsigned char *first;
// A byte that counts its loads, marks that it was loaded, and counts the 32-byte sectors that each block of
// threads fetches.
struct Byte {
    unsigned char value;
    operator int() const {
        if (marks) marks[reinterpret_cast<const unsigned char *>(this) - first] = 1;
        if (blockIdx.x != last_x || blockIdx.y != last_y) of_block.clear();
        last_x = blockIdx.x, last_y = blockIdx.y;
        ++loads;
        sectors += of_block.insert(reinterpret_cast<std::uintptr_t>(this) / 32).second;
        return value;
    }
};
KERNEL
extern "C" void count(unsigned gx, unsigned gy, unsigned bx, unsigned by, void *params, void *pixels,
                      void *out, unsigned long long *found, unsigned char *loaded) {
    loads = sectors = 0;
    marks = loaded, first = static_cast<const unsigned char *>(pixels);
    of_block.clear();
    void *arguments[] = {&params, &pixels, &out};
    run_grid(preprocess, dim3{gx, gy, 1}, dim3{bx, by, 1}, arguments);
    found[0] = loads, found[1] = sectors;
}
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("g++") is None:
        pytest.skip("counting loads needs g++")
    folder = tmp_path_factory.mktemp("traffic")
    kernel = (KERNEL_FOLDER / "preprocess.cu").read_text().replace("const unsigned char", "const Byte")
    (folder / "count.cpp").write_text(COUNTER.replace("KERNEL", kernel))
    here = Path(__file__).parent
    command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{here}", "-o", str(folder / "count.so")]
    subprocess.run([*command, str(folder / "count.cpp")], check=True)
    library = ctypes.CDLL(str(folder / "count.so"))
    library.count.argtypes = [*[ctypes.c_uint] * 4, *[ctypes.c_void_p] * 5]
    library.count.restype = None
    return library


def traffic(
    counter: ctypes.CDLL, size: tuple[int, int], block: tuple[int, int], region: tuple[int, int]
) -> tuple[float, int]:
    """Loads per thread, and bytes that the blocks fetch, for the first columns and rows (``region``) of a
    full view of a bgr8 image."""
    width, height = size
    image = Image.from_array(np.zeros((height, width, 3), np.uint8), "bgr8")
    parameters = PreprocessParameters(SIDE, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    record = parameters.record(image, View.full(width, height, SIDE))
    pixels, out = np.ascontiguousarray(image.rows), np.empty((3, SIDE, SIDE), np.float32)
    found = np.zeros(2, np.uint64)
    described = np.frombuffer(record.tobytes(), np.uint8).copy()
    addresses = [array.ctypes.data for array in (described, pixels, out, found)]
    grid = [threads // by for threads, by in zip(region, block, strict=True)]
    counter.count(*grid, *block, *addresses, None)
    return int(found[0]) / np.prod(region), 32 * int(found[1])


def loaded(counter: ctypes.CDLL, parameters: PreprocessParameters, image: Image, view: View) -> np.ndarray:
    """Which bytes of an image's rows are read for a view: bool, as the rows."""
    record, side = parameters.record(image, view), view.side
    pixels, out = np.ascontiguousarray(image.rows), np.empty((3, side, side), np.float32)
    found, marks = np.zeros(2, np.uint64), np.zeros(pixels.shape, np.uint8)
    described = np.frombuffer(record.tobytes(), np.uint8).copy()
    addresses = [array.ctypes.data for array in (described, pixels, out, found, marks)]
    counter.count(*(side // threads for threads in TILE), *TILE, *addresses)
    return marks.astype(bool)


WINDOWS = {
    "in the middle": (301.3, 207.8, 150.0),
    "at the left and top edges": (20.0, 11.5, 150.0),
    "at the right and bottom edges": (630.0, 470.5, 150.0),
    "larger than the image": (330.0, 250.0, 900.0),
    "of a few pixels": (500.25, 100.5, 7.0),
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("encoding", {one.kernel_code: name for name, one in ENCODINGS.items()}.values())
def test_what_is_copied_is_what_the_kernel_reads(counter: ctypes.CDLL, encoding: str, window: str) -> None:
    """Not a byte is missing, and at most five rows or columns on each side are too many."""
    facts, width, height = ENCODINGS[encoding], 640, 480
    rows, row = height * facts.rows_per_pair // 2, width * facts.bytes_per_pixel
    image = Image(np.zeros((rows, row + 5), np.uint8), width, height, encoding)
    view = View.window(*WINDOWS[window], 64)
    parameters = PreprocessParameters(64, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    read, copied = loaded(counter, parameters, image, view), np.zeros(image.rows.shape, bool)
    for part in parameters.needed_parts(image, view):
        copied[part.slices] = True
    assert read.any()
    assert not (read & ~copied).any()
    for axis, most in ((1, 5), (0, 5 * facts.bytes_per_pixel)):
        planes = (slice(0, height), slice(height, rows)) if axis == 1 else (slice(0, rows),)
        for plane in planes:
            ours, theirs = (np.flatnonzero(which[plane].any(axis=axis)) for which in (copied, read))
            if len(ours):
                assert theirs[0] - ours[0] <= most
                assert ours[-1] - theirs[-1] <= most


@pytest.mark.parametrize(("size", "loads"), [((1280, 720), 48), ((3840, 2160), 300)])
def test_a_thread_loads_each_byte_several_times(
    counter: ctypes.CDLL, size: tuple[int, int], loads: int
) -> None:
    """Why images are copied to memory that the GPU caches, unless a board is measured to be faster without:
    pinned memory is not cached there."""
    assert traffic(counter, size, TILE, TILE)[0] == loads


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_tiles_fetch_less_than_rows_of_threads(counter: ctypes.CDLL, size: tuple[int, int]) -> None:
    region = (THREADS, 16)
    tiles, rows = (traffic(counter, size, block, region)[1] for block in (TILE, (THREADS, 1)))
    assert tiles < 0.8 * rows
