"""Start the tracker: `ros2 launch efftam_ros tracker.launch.py image:=/camera/image_raw`."""

from importlib.metadata import PackageNotFoundError, distribution

from launch.actions import LogInfo, SetEnvironmentVariable
from launch.substitutions import EnvironmentVariable
from launch_ros.parameter_descriptions import ParameterValue

from efftam_ros.messages.bearing import camera_info_beside
from efftam_ros.package_files import PROFILE_VARIABLES
from efftam_ros.ros.common.launching import (
    CONFIG,
    TRACKER,
    described,
    node,
    parameter_file,
    passed_over,
)

FLIGHT = "flight"  # parameters of gimbal and bridge, see flight.launch.py
ON_A_JETSON = (
    "params:=jetson computes with {}; the fastest is TensorRT: build the engines once (efftam build) and add"
    " backend:=tensorrt"
)
PROFILE = str(CONFIG / "fastdds_images.xml")


def tracker_parameters(name):
    path = parameter_file(name)
    if path is None or name == FLIGHT:
        ships = ", ".join(sorted(p.stem for p in CONFIG.glob("*.yaml") if p.stem != FLIGHT))
        raise RuntimeError(
            f"params:={name} is no file of the tracker's parameters and not one of the shipped ones: {ships}"
        )
    return path


def jetson_backend():
    """The back end that ran on hardware, where it is installed; TensorRT needs engines first."""
    try:
        distribution("onnxruntime-gpu")
    except PackageNotFoundError:
        return "onnxruntime-cpu"
    return "onnxruntime-cuda"


def operator_node(value):
    """The page's node, for the same images; what it shares with the tracker is in the parameter file too."""
    if not value["operator_port"].isdecimal():
        raise RuntimeError(f"operator_port:={value['operator_port']} is no number; give one from 0 to 65535")
    own = {"port": int(value["operator_port"]), "address": value["operator_address"]}
    if value["image_transport"]:
        own["image_transport"] = value["image_transport"]
    return node(
        "efftam_operator",
        value,
        parameters=[tracker_parameters(value["params"]), own],
        remappings=[("image", value["image"])],
    )


def camera_node(value):
    """The stream's node; its own parameters may stand in the tracker's file, under its name."""
    if value["image_transport"] not in ("", "raw"):
        raise RuntimeError(
            f"stream:= is published raw, image_transport:={value['image_transport']} is given; leave it out"
        )
    own = {name: ParameterValue(value[name], value_type=str) for name in ("stream", "calibration")}
    camera_info = value["camera_info"] or camera_info_beside(value["image"])
    return node(
        "efftam_camera",
        value,
        parameters=[tracker_parameters(value["params"]), own],
        remappings=[("image", value["image"]), ("camera_info", camera_info)],
    )


def start_nodes(context, value):
    settings = ("image_transport", "bundle", "backend", "precision", "camera_motion")
    # Texts: "off" would else become false.
    own = {name: ParameterValue(value[name], value_type=str) for name in settings if value[name]}
    notes = passed_over(context)
    if value["params"] == "jetson" and not value["backend"]:
        backend = jetson_backend()
        own["backend"] = ParameterValue(backend, value_type=str)
        notes.append(LogInfo(msg=ON_A_JETSON.format(backend)))
    tracker = node(
        "efftam_tracker",
        value,
        parameters=[
            tracker_parameters(value["params"]),
            {"use_sim_time": value["use_sim_time"] == "true", **own},
        ],
        remappings=[(name, value[name]) for name in ("image", "camera_info") if value[name]],
    )
    camera = [camera_node(value)] if value["stream"] else []
    return [*notes, *camera, tracker, *([operator_node(value)] if value["operator"] == "true" else [])]


def generate_launch_description():
    # A profile set by the user is kept; other middlewares than Fast DDS read neither variable.
    profiles = [
        SetEnvironmentVariable(name, EnvironmentVariable(name, default_value=PROFILE))
        for name in PROFILE_VARIABLES
    ]
    return described(TRACKER.values(), start_nodes, *profiles)
