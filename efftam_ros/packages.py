"""Python packages that commands and nodes need, and the extras of this package that install them."""

from __future__ import annotations

from typing import NamedTuple


class Package(NamedTuple):
    """A Python package that this package uses.

    Attributes:
        module: Name by which Python imports the package.
        pip: Name by which pip installs the package.
        extra: Extra of this package that installs it; "" if it is always installed.
        purpose: The commands and features that use it.
    """

    module: str
    pip: str
    extra: str
    purpose: str

    @property
    def install(self) -> str:
        """The pip command that installs this package, and the one that installs all packages of its extra.

        Packages are named instead of the extra, because a ROS workspace has no wheel with extras.
        """
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
    """Return the package whose import raised this error; None if it is in neither `NEEDED` nor `OPTIONAL`."""
    name = (error.name or "").partition(".")[0]
    return next((one for one in (*NEEDED, *OPTIONAL) if one.module == name), None)
