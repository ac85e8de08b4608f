"""Reads a calibration file of camera_calibration as sensor_msgs/CameraInfo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from sensor_msgs.msg import CameraInfo

from efftam_ros.core.errors import InputError, shown
from efftam_ros.interop.messages import camera_model

# Field of the message, key of the file, number of values.
MATRICES = (("k", "camera_matrix", 9), ("r", "rectification_matrix", 9), ("p", "projection_matrix", 12))


def read_calibration(file: str) -> CameraInfo:
    """Read a file, named by its path or ``file://``. Raises InputError where it is not a calibration."""
    path = Path(file.removeprefix("file://")).expanduser()
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"calibration {path} can't be read ({error.strerror}); correct its path") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"calibration {path} is no YAML: {shown(error)}; calibrate again") from None
    try:
        message = CameraInfo(
            width=int(found["image_width"]),
            height=int(found["image_height"]),
            distortion_model=str(found["distortion_model"]),
            d=[float(v) for v in found["distortion_coefficients"]["data"]],
        )
        for field, key, count in MATRICES:
            setattr(message, field, _numbers(found[key]["data"], key, count))
        camera_model(message)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        fault = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"calibration {path} is not in camera_calibration's format: {shown(fault)[1:-1]}; calibrate again"
        ) from None
    return message


def _numbers(values: Any, key: str, count: int) -> list[float]:
    numbers = [float(v) for v in values]
    if len(numbers) != count:
        raise ValueError(f"{key} has {len(numbers)} values, {count} are needed")
    return numbers
