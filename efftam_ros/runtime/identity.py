"""Describes crops of images by the identity network: crops that show the same object give similar vectors.

The identity network runs on the CPU with every back end, by ONNX Runtime. A GPU would gain little: a crop
takes about a millisecond, and most crops are described after the answer was published.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image
from efftam_ros.images.pixels import Region, to_bgr

SHIPPED = Path(__file__).parents[1] / "models" / "identity"
GRAPH, MANIFEST, FORMAT = "identity.onnx", "identity.json", 1
REMEDY = "install efftam_ros again, or set the parameter identity to false"


def read_network(folder: Path = SHIPPED) -> tuple[dict[str, Any], bytes]:
    """Return the manifest and the ONNX graph of the identity network.

    Raises BackendError if a file is missing, damaged or of another format.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        content = (folder / GRAPH).read_bytes()
        known, _, _ = (int(manifest[name]) for name in ("format", "side", "size"))
    except OSError as error:
        raise BackendError(f"the identity network is missing: {error.filename}", REMEDY) from None
    except (ValueError, KeyError, TypeError):
        raise BackendError(
            f"{folder / MANIFEST} is not the manifest of an identity network", REMEDY
        ) from None
    if known != FORMAT:
        raise BackendError(f"{folder / MANIFEST} has format {known}, this version reads {FORMAT}", REMEDY)
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        raise BackendError(f"{folder / GRAPH} is damaged: its SHA-256 is not that of {MANIFEST}", REMEDY)
    return manifest, content


class Identity:
    """The loaded identity network. `describe` may be called from any thread."""

    def __init__(self, folder: Path = SHIPPED) -> None:
        """Load the network. Raises BackendError if a file is missing, damaged or of another format."""
        manifest, content = read_network(folder)
        self.side, self.size = int(manifest["side"]), int(manifest["size"])
        """Side of the square crop that the network receives, px; length of the vectors that it gives."""
        self._session = _session(content)

    def describe(self, image: Image, boxes: Sequence[Box]) -> NDArray[np.float32]:
        """Return one vector for each box of an image: float32 [n, size], each vector of Euclidean norm 1.

        Boxes are in px of the image, which may have any encoding. Only the pixels in the boxes are read. The
        vector is NaN if its box has no pixel in the image, or if the image can't be used.
        """
        vectors = np.full((len(boxes), self.size), np.nan, np.float32)
        crops = [
            (index, crop) for index, box in enumerate(boxes) if (crop := self._crop(image, box)) is not None
        ]
        if crops:
            found = self._session.run(None, {"crops": np.stack([crop for _, crop in crops])})[0]
            vectors[[index for index, _ in crops]] = found
        return vectors

    def _crop(self, image: Image, box: Box) -> NDArray[np.uint8] | None:
        region = Region.inside(box, 1.0, image)
        if region.is_empty:
            return None
        try:
            pixels = to_bgr(image, region)
        except InputError:
            return None
        is_reduced = pixels.shape[0] > self.side and pixels.shape[1] > self.side
        interpolation = cv2.INTER_AREA if is_reduced else cv2.INTER_LINEAR
        return np.asarray(cv2.resize(pixels, (self.side, self.side), interpolation=interpolation), np.uint8)


def _session(content: bytes):  # type: ignore[no-untyped-def]  # onnxruntime has no types
    try:
        import onnxruntime
    except ImportError:
        raise BackendError("onnxruntime is not installed", "pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    # One thread: a crop is too little work for two, and the network of the tracker needs the other cores.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
