"""The node `efftam_camera`: publishes the images of a stream, the camera's calibration, and diagnostics."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from typing import Any

import yaml
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, Image

from efftam_ros.core.config import expanded
from efftam_ros.core.errors import InputError, shown
from efftam_ros.images.camera import Camera, CameraOptions, is_live, local_path
from efftam_ros.images.message import fill_image
from efftam_ros.images.source import NS, VideoFrame
from efftam_ros.messages.bearing import camera_model
from efftam_ros.ros.camera_parameters import PARAMETERS, CameraConfig
from efftam_ros.ros.common.nodes import (
    ThrottledLog,
    check_qos_overrides,
    diagnostics,
    make_publisher,
    reliable,
    steady_timer,
)
from efftam_ros.ros.common.parameters import read_parameters
from efftam_ros.ros.tracker.diagnostics import rate_hz
from efftam_ros.ros.tracker.parameters import PARAMETERS as TRACKER_PARAMETERS

# The matrices of a calibration: field of CameraInfo, key in the calibration file, number of values.
MATRICES = (("k", "camera_matrix", 9), ("r", "rectification_matrix", 9), ("p", "projection_matrix", 12))


def read_calibration(file: str) -> CameraInfo:
    """Read a calibration file as camera_calibration writes it (YAML).

    ``file``: its path, or a URL ``file://``. Raises InputError if the file can't be read or holds something
    else.
    """
    path = expanded(local_path(file))
    try:
        text = path.read_text(encoding="utf-8-sig")
        if text.startswith("%YAML:"):
            raise InputError(
                f"calibration {path} is in OpenCV's own format; write it in that of camera_calibration:"
                " image_width, image_height, distortion_model, and camera_matrix, distortion_coefficients,"
                " rectification_matrix, projection_matrix each with rows, cols, data"
            )
        found = yaml.safe_load(text)
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


NODE_NAME = "efftam_camera"
# Diagnostics warn after SILENT_S seconds without an image. The reported rate is that of the newest
# RATE_IMAGES images.
SILENT_S, RATE_IMAGES = 1.0, 30
# Pause before the stream is read again after an unforeseen error, s.
RESTART_S = 0.5


class CameraNode(Node):
    """Publishes the topics `image` and `camera_info` in a thread of their own, from `start` to `close`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(NODE_NAME, **kwargs)
        PARAMETERS.declare(self, others=TRACKER_PARAMETERS.names())
        check_qos_overrides(self)
        self._config = config = read_parameters(self, CameraConfig)
        if not config.stream:
            raise InputError(
                "parameter stream is empty; give rtsp://..., udp://@:PORT, /dev/video0 or a file"
            )
        if not is_live(config.stream) and not local_path(config.stream).is_file():
            raise InputError(
                f"stream {config.stream} is neither a URL nor a device nor a file; correct its name"
            )
        self._calibration = read_calibration(config.calibration) if config.calibration else None
        self._images = make_publisher(self, Image, "image", reliable(1))
        self._infos = (
            make_publisher(self, CameraInfo, "camera_info", reliable(1)) if self._calibration else None
        )
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._log = ThrottledLog(self.get_logger())
        self._camera: Camera | None = None
        self._worker: threading.Thread | None = None
        # When the newest images were published, s on the steady clock.
        self._moments_s: deque[float] = deque(maxlen=RATE_IMAGES)
        self._size = (0, 0)
        self._damaged = 0  # number of damaged packets of the stream until the last diagnostics
        self._fault = self._logged = self._error = ""
        self._has_ended = threading.Event()

    def start(self) -> None:
        """Start to read and publish the stream. Raises InputError if the hardware decoder that the parameters
        name is not available."""
        options = read_parameters(self, CameraOptions)
        self._camera = camera = Camera(self._config.stream, None, options, self.get_logger().warning)
        self._worker = threading.Thread(target=self._publish_all, args=(camera,), name="images", daemon=True)
        self._worker.start()
        self.get_logger().info(f"images on {self._images.topic_name}: {camera.waiting_for}")
        steady_timer(self, self._config.diagnostics_period, self._report)

    def close(self) -> None:
        self._has_ended.set()
        if self._camera is not None and self._worker is not None:
            self._camera.close()
            self._worker.join()
        self.destroy_node()

    @property
    def is_stuck(self) -> bool:
        """Whether the stream is still being read after `close`.

        FFmpeg's UDP receiver waits by the system's clock. If that clock is set back, the wait ends only when
        packets arrive.
        """
        return self._camera is not None and self._camera.is_reading

    def internal_error(self, error: BaseException) -> None:
        """Store an unforeseen error, so that the next diagnostics report it."""
        self._error = f"internal error ({type(error).__name__}: {error})"

    def _publish_all(self, camera: Camera) -> None:
        """Publish images until the stream ends. After an unforeseen error the stream is opened again."""
        while not self._has_ended.is_set():
            try:
                for frame in camera.frames():
                    self._publish(frame)
                return
            except InputError as error:
                self._fault = str(error)
                return
            except Exception as error:
                self.internal_error(error)
                self._log.fail("error", traceback.format_exc().rstrip())
            camera = self._reopen(camera)

    def _reopen(self, camera: Camera) -> Camera:
        """Open the stream again after a pause, because an error ended the iterator of its images."""
        self._has_ended.wait(RESTART_S)
        self._camera = made = Camera(self._config.stream, None, camera.options, self.get_logger().warning)
        self._damaged = 0  # the new camera counts from 0
        if self._has_ended.is_set():
            made.close()
        return made

    def _publish(self, frame: VideoFrame) -> None:
        message = fill_image(Image(), frame.bgr, "bgr8")
        message.header.frame_id = self._config.frame_id
        stamp_ns = frame.stamp_ns - round(self._config.latency * NS)
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, NS)
        info = self._calibration
        if self._infos is not None and info is not None and (info.width, info.height) == frame.size:
            info.header = message.header
            self._infos.publish(info)
        self._images.publish(message)
        self._size = frame.size
        self._moments_s.append(time.monotonic())

    def _report(self) -> None:
        level, text = self._verdict()
        camera = self._camera
        assert camera is not None
        is_ok = level == DiagnosticStatus.OK
        status = "images of {}x{} px ({})".format(*self._size, camera.decoder) if is_ok else text
        if status != self._logged:
            self._logged = status
            (self._log.inform if is_ok else self._log.warn)(status, status)
        values = {
            "stream": camera.name,
            "decoder": camera.decoder or "not known yet",
            "size": "{} x {} px".format(*self._size),
            "times": camera.times,
            "damaged packets": camera.damaged,
            "images left out": camera.left_out,
            "calibration": self._config.calibration or "none",
        }
        self._diagnostics.publish(diagnostics(self, "stream", level, text, values))

    def _verdict(self) -> tuple[bytes, str]:
        camera, info, now_s = self._camera, self._calibration, time.monotonic()
        assert camera is not None
        if self._fault:
            return DiagnosticStatus.ERROR, self._fault
        if self._error:
            error, self._error = self._error, ""
            return DiagnosticStatus.ERROR, error
        if camera.waiting_for:
            return DiagnosticStatus.WARN, camera.waiting_for
        moments = tuple(self._moments_s)
        if not moments or now_s - moments[-1] > SILENT_S:
            return DiagnosticStatus.WARN, f"waiting for the next image of {camera.name}"
        if info is not None and (info.width, info.height) != self._size:
            return DiagnosticStatus.WARN, (
                f"camera_info is not published: the images have {self._size[0]}x{self._size[1]} px,"
                f" {self._config.calibration} is for {info.width}x{info.height} px; calibrate the camera at"
                " the size of the images"
            )
        damaged, self._damaged = camera.damaged - self._damaged, camera.damaged
        if damaged:
            return DiagnosticStatus.WARN, (
                f"packets of {camera.name} arrive damaged or not at all: images that need them are left out;"
                f" {camera.remedy}"
            )
        rate = rate_hz(moments, now_s) or 0.0
        return DiagnosticStatus.OK, f"{rate:.1f} images/s of {self._size[0]}x{self._size[1]} px"
