"""Python packages that single commands and nodes need, and the extras of this package that bring them."""

from __future__ import annotations

from typing import NamedTuple


class Optional(NamedTuple):
    """``module``: as imported; ``pip``: as installed; ``extra``: of this package; ``purpose``: its users."""

    module: str
    pip: str
    extra: str
    purpose: str

    @property
    def install(self) -> str:
        """The command for this package alone, which is also right in a ROS workspace, and for its extra."""
        return f"pip install {self.pip}, or all that goes with it: pip install 'efftam_ros[{self.extra}]'"


OPTIONAL = (
    Optional("av", "av", "tools", "videos: track, eval, demo"),
    Optional("rosbags", "rosbags", "tools", "bags: replay, bag"),
    Optional("tqdm", "tqdm", "tools", "progress bars"),
    Optional("matplotlib", "matplotlib", "tools", "eval --plot, demo"),
    Optional("aiohttp", "aiohttp", "operator", "the operator's page"),
    Optional("huggingface_hub", "huggingface_hub", "hub", "fetch"),
    Optional("pymavlink", "pymavlink", "mavlink", "efftam_mavlink"),
    Optional("serial", "pyserial", "mavlink", "efftam_mavlink on serial lines"),
    Optional("onnx", "onnx", "build", "build, export"),
    Optional("torch", "torch", "export", "export"),
    Optional("onnxscript", "onnxscript", "export", "export"),
)
