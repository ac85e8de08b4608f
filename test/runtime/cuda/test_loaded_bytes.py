"""What the preprocessing kernel reads from memory, seen where every load of a byte is a call."""

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
from efftam_ros.runtime.cuda.module import TILE
from efftam_ros.runtime.cuda.preprocess_params import PreprocessParameters

MARKER = """\
#include "shim.hpp"
static unsigned char *marks;
static const unsigned char *first;
// A byte that marks that it was loaded.
struct Byte {
    unsigned char value;
    operator int() const {
        marks[reinterpret_cast<const unsigned char *>(this) - first] = 1;
        return value;
    }
};
KERNEL
extern "C" void mark(unsigned gx, unsigned gy, unsigned bx, unsigned by, void *params, void *pixels,
                     void *out, unsigned char *loaded) {
    marks = loaded, first = static_cast<const unsigned char *>(pixels);
    void *arguments[] = {&params, &pixels, &out};
    run_grid(preprocess, dim3{gx, gy, 1}, dim3{bx, by, 1}, arguments);
}
"""


@pytest.fixture(scope="module")
def marker(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("g++") is None:
        pytest.skip("marking loads needs g++")
    folder = tmp_path_factory.mktemp("traffic")
    kernel = (KERNEL_FOLDER / "preprocess.cu").read_text().replace("const unsigned char", "const Byte")
    (folder / "mark.cpp").write_text(MARKER.replace("KERNEL", kernel))
    here = Path(__file__).parent
    command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{here}", "-o", str(folder / "mark.so")]
    subprocess.run([*command, str(folder / "mark.cpp")], check=True)
    library = ctypes.CDLL(str(folder / "mark.so"))
    library.mark.argtypes = [*[ctypes.c_uint] * 4, *[ctypes.c_void_p] * 4]
    library.mark.restype = None
    return library


def loaded(marker: ctypes.CDLL, parameters: PreprocessParameters, image: Image, view: View) -> np.ndarray:
    """Which bytes of an image's rows are read for a view: bool, as the rows."""
    record, side = parameters.record(image, view), view.side
    pixels, out = np.ascontiguousarray(image.rows), np.empty((3, side, side), np.float32)
    marks = np.zeros(pixels.shape, np.uint8)
    described = np.frombuffer(record.tobytes(), np.uint8).copy()
    addresses = [array.ctypes.data for array in (described, pixels, out, marks)]
    marker.mark(*(side // threads for threads in TILE), *TILE, *addresses)
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
def test_what_is_copied_is_what_the_kernel_reads(marker: ctypes.CDLL, encoding: str, window: str) -> None:
    """Not a byte is missing, and at most five rows or columns on each side are too many."""
    facts, width, height = ENCODINGS[encoding], 640, 480
    rows, row = height * facts.rows_per_pair // 2, width * facts.bytes_per_pixel
    image = Image(np.zeros((rows, row + 5), np.uint8), width, height, encoding)
    view = View.window(*WINDOWS[window], 64)
    parameters = PreprocessParameters(64, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    read, copied = loaded(marker, parameters, image, view), np.zeros(image.rows.shape, bool)
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
