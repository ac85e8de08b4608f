"""Which conversion reads the images, and that both give the same pixels."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from efftam_ros.core.errors import InputError
from efftam_ros.interop.messages import fill_image, image_from_message
from efftam_ros.ros.common.images import BRIDGED, image_reader
from efftam_ros.runtime.image.encodings import ENCODINGS

MOST = 1000  # pixels of an image


def message(encoding: str, padding: int):
    image = pytest.importorskip("sensor_msgs.msg", reason="ROS 2 is not installed").Image
    kind = ENCODINGS[encoding]
    row = 12 * kind.bytes_per_pixel
    rows = np.random.default_rng(4).integers(0, 256, (6, row + padding), dtype=np.uint8)
    made = fill_image(image(), rows, encoding)
    made.width = 12
    return made


@pytest.mark.parametrize("padding", [0, 12, 16])
@pytest.mark.parametrize("encoding", sorted(BRIDGED))
def test_cv_bridge_reads_the_same_pixels(encoding, padding):
    pytest.importorskip("cv_bridge", reason="cv_bridge is not installed")
    read, name = image_reader()
    assert name == "cv_bridge"
    ours, theirs = (read_by(message(encoding, padding), MOST) for read_by in (image_from_message, read))
    assert np.array_equal(ours.rows, theirs.rows)
    assert (ours.width, ours.height, ours.encoding) == (theirs.width, theirs.height, theirs.encoding)


def test_a_needless_big_endian_mark_does_no_harm():
    pytest.importorskip("cv_bridge", reason="cv_bridge is not installed")
    marked = message("bgr8", 0)
    marked.is_bigendian = 1
    assert np.array_equal(image_reader()[0](marked, MOST).rows, image_from_message(message("bgr8", 0)).rows)


def test_what_cv_bridge_would_trust_is_checked_first():
    pytest.importorskip("cv_bridge", reason="cv_bridge is not installed")
    cut = message("bgr8", 0)
    cut.data = cut.data[:50]
    with pytest.raises(InputError, match="the image is truncated"):
        image_reader()[0](cut, MOST)


def test_a_last_row_without_its_padding_is_read_past_cv_bridge(monkeypatch):
    """cv_bridge makes an array of whole rows over the message's bytes: TypeError if they are too few."""
    bridge = ModuleType("cv_bridge")
    read_by_bridge = []

    class CvBridge:
        def encoding_to_cvtype2(self, encoding):
            return 16

        def imgmsg_to_cv2(self, msg, desired_encoding):
            read_by_bridge.append(msg)
            return np.ndarray((msg.height, msg.step // 3, 3), np.uint8, msg.data)[:, : msg.width]

    bridge.CvBridge = CvBridge
    monkeypatch.setitem(sys.modules, "cv_bridge", bridge)
    read, _ = image_reader()
    whole, cut = message("bgr8", 12), message("bgr8", 12)
    del cut.data[-12:]
    assert np.array_equal(read(cut, MOST).rows, read(whole, MOST).rows)
    assert read_by_bridge == [whole]


def test_without_cv_bridge_the_own_conversion_reads_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv_bridge", None)
    read, name = image_reader()
    assert read is image_from_message
    assert name.startswith("own zero-copy conversion (cv_bridge:")


def test_a_broken_cv_bridge_is_named(monkeypatch):
    """As a C++ half compiled against another numpy: it imports, and fails when used."""
    broken = ModuleType("cv_bridge")

    class CvBridge:
        def encoding_to_cvtype2(self, encoding):
            raise AttributeError("_ARRAY_API not found")

    broken.CvBridge = CvBridge
    monkeypatch.setitem(sys.modules, "cv_bridge", broken)
    read, name = image_reader()
    assert read is image_from_message
    assert "installed but broken: _ARRAY_API not found" in name
