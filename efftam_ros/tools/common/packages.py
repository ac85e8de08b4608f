"""Python packages that single commands and nodes need, and the extras of this package that bring them."""

from __future__ import annotations

from typing import NamedTuple


class Optional(NamedTuple):
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


OPTIONAL = (
    Optional("av", "av", "", "videos: track, eval, demo, Python"),
    Optional("rosbags", "rosbags", "tools", "bags: replay, bag"),
    Optional("tqdm", "tqdm", "tools", "progress bars"),
    Optional("matplotlib", "matplotlib", "tools", "eval --plot, demo"),
    Optional("rerun", "rerun-sdk", "view", "--rerun"),
    Optional("aiohttp", "aiohttp", "operator", "the operator's page"),
    Optional("huggingface_hub", "huggingface_hub", "hub", "fetch"),
    Optional("pymavlink", "pymavlink", "mavlink", "efftam_mavlink"),
    Optional("serial", "pyserial", "mavlink", "efftam_mavlink on serial lines"),
    Optional("onnx", "onnx", "build", "build, export"),
    Optional("torch", "torch", "export", "export"),
    Optional("onnxscript", "onnxscript", "export", "export"),
)
