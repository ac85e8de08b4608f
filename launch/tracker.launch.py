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

FLIGHT = "flight"  # name of the parameter file for the nodes that only flight.launch.py starts
ON_A_JETSON = (
    "params:=jetson uses the back end {}. TensorRT is faster: build its engines once (efftam build), then add"
    " backend:=tensorrt"
)
PROFILE = str(CONFIG / "fastdds_images.xml")


def tracker_parameters(name):
    path = parameter_file(name)
    if path is None or name == FLIGHT:
        ships = ", ".join(sorted(p.stem for p in CONFIG.glob("*.yaml") if p.stem != FLIGHT))
        raise RuntimeError(
            f"params:={name} is neither a parameter file of the tracker nor one of the shipped ones: {ships}"
        )
    return path


def jetson_backend():
    """Return onnxruntime-cuda if onnxruntime-gpu is installed, else onnxruntime-cpu.

    TensorRT is not chosen, because its engines have to be built first.
    """
    try:
        distribution("onnxruntime-gpu")
    except PackageNotFoundError:
        return "onnxruntime-cpu"
    return "onnxruntime-cuda"


def operator_node(value):
    """Return the node of the operator's page. It uses the tracker's images and parameter file."""
    if not value["operator_port"].isdecimal():
        raise RuntimeError(
            f"operator_port:={value['operator_port']} is not a port; give a number from 0 to 65535"
        )
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
    """Return the node that publishes the stream.

    The tracker's parameter file may also contain parameters of this node, under the node's name.
    """
    if value["image_transport"] not in ("", "raw"):
        raise RuntimeError(
            f"image_transport:={value['image_transport']} can't be used with stream:=, because the stream's"
            " images are published raw; leave out image_transport"
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
    # The values are passed as text, because launch would read "off" as the boolean false.
    own = {name: ParameterValue(value[name], value_type=str) for name in settings if value[name]}
    messages = passed_over(context)
    if value["params"] == "jetson" and not value["backend"]:
        backend = jetson_backend()
        own["backend"] = ParameterValue(backend, value_type=str)
        messages.append(LogInfo(msg=ON_A_JETSON.format(backend)))
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
    return [*messages, *camera, tracker, *([operator_node(value)] if value["operator"] == "true" else [])]


def generate_launch_description():
    # A profile that the user set is kept. Only Fast DDS reads these variables.
    profiles = [
        SetEnvironmentVariable(name, EnvironmentVariable(name, default_value=PROFILE))
        for name in PROFILE_VARIABLES
    ]
    return described(TRACKER.values(), start_nodes, *profiles)
