"""Python packages that commands and nodes need, and the extras of this package that bring them."""

from __future__ import annotations

from typing import NamedTuple


class Package(NamedTuple):
    """``module``: as imported; ``pip``: as installed; ``extra`` that brings it, "" for one that every wheel
    brings; ``purpose``: its users."""

    module: str
    pip: str
    extra: str
    purpose: str

    @property
    def install(self) -> str:
        """The command for this package, and for all of its extra; right for wheels and in a ROS workspace."""
        if not self.extra:
            return f"pip install {self.pip}"
        others = [package.pip for package in OPTIONAL if package.extra == self.extra]
        whole = f", or all of the extra [{self.extra}]: pip install {' '.join(others)}"
        return f"pip install {self.pip}" + (whole if len(others) > 1 else f" (extra [{self.extra}])")


NEEDED = (
    Package("numpy", "numpy", "", "everything"),
    Package("cv2", "opencv-python-headless", "", "everything"),
    Package("onnxruntime", "onnxruntime", "", "everything"),
)
OPTIONAL = (
    Package("av", "av", "", "videos, streams and video topics"),
    Package("rosbags", "rosbags", "tools", "bags: replay, bag"),
    Package("tqdm", "tqdm", "tools", "progress bars"),
    Package("matplotlib", "matplotlib", "tools", "eval --plot, demo"),
    Package("rerun", "rerun-sdk", "view", "--rerun"),
    Package("aiohttp", "aiohttp", "operator", "the operator's page"),
    Package("huggingface_hub", "huggingface_hub", "workshop", "fetch"),
    Package("pymavlink", "pymavlink", "flight", "efftam_mavlink"),
    Package("serial", "pyserial", "flight", "efftam_mavlink on serial lines"),
    Package("rasterio", "rasterio", "terrain", "track --terrain"),
    Package("onnx", "onnx", "workshop", "build, export"),
    Package("torch", "torch", "workshop", "export"),
    Package("onnxscript", "onnxscript", "workshop", "export"),
)


def missing_package(error: ModuleNotFoundError) -> Package | None:
    """Return the package of the table that is not installed; None where another module is missing."""
    name = (error.name or "").partition(".")[0]
    return next((one for one in (*NEEDED, *OPTIONAL) if one.module == name), None)
