"""Start the tracker: `ros2 launch efftam_ros tracker.launch.py image:=/camera/image_raw`."""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch.substitutions import EnvironmentVariable, LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from launch import LaunchDescription

CONFIG = Path(get_package_share_directory("efftam_ros")) / "config"
PROFILE = str(CONFIG / "fastdds_images.xml")

# name, default, description, choices; an empty default leaves the setting to the parameter file
ARGUMENTS = (
    ("image", "/camera/image_raw", "topic of the images to track in", None),
    ("camera_info", "", "topic of the calibration; empty: camera_info beside the images", None),
    (
        "image_transport",
        "",
        "type of the image topic; empty: from the parameter file",
        ["", "raw", "compressed"],
    ),
    ("bundle", "", "folder of the network bundle; empty: from the parameter file", None),
    ("backend", "", "back end; empty: from the parameter file", None),
    (
        "camera_motion",
        "",
        "where the tracker learns the camera's motion; empty: from the parameter file",
        ["", "auto", "topic", "off"],
    ),
    ("attitude", "", "topic of the camera's attitude, for camera_motion:=topic; empty: attitude", None),
    ("params", "tracker", "parameter file: tracker, desktop, jetson (shipped), or a path", None),
    ("namespace", "", "namespace of the node and its topics", None),
    ("operator", "false", "serve the operator's page beside the tracker", ["true", "false"]),
    ("operator_port", "8080", "port of the operator's page; 0: a free one", None),
    (
        "operator_address",
        "127.0.0.1",
        "address that the operator's page is served on: this computer alone, or 0.0.0.0 with a token",
        None,
    ),
    ("use_sim_time", "false", "follow /clock, for bags and simulators", ["true", "false"]),
    ("log_level", "info", "log level of the node", ["debug", "info", "warn", "error"]),
)


def parameter_file(name):
    """The shipped parameter file of that name, else the path itself."""
    shipped = CONFIG / f"{name}.yaml"
    path = shipped if shipped.is_file() else Path(name).expanduser()
    if not path.is_file():
        ships = ", ".join(sorted(p.stem for p in CONFIG.glob("*.yaml")))
        raise RuntimeError(f"params:={name} is not a file and not one of the shipped ones: {ships}")
    return str(path)


def operator_node(value):
    """The page's node, for the same images; what it shares with the tracker is in the parameter file too."""
    if not value["operator_port"].isdecimal():
        raise RuntimeError(f"operator_port:={value['operator_port']} is no number; give one from 0 to 65535")
    given = {"port": int(value["operator_port"]), "address": value["operator_address"]}
    if value["image_transport"]:
        given["image_transport"] = value["image_transport"]
    return Node(
        package="efftam_ros",
        executable="efftam_operator",
        name="efftam_operator",
        namespace=value["namespace"],
        output="screen",
        parameters=[parameter_file(value["params"]), given],
        remappings=[("image", value["image"])],
        ros_arguments=["--log-level", value["log_level"]],
    )


def start_nodes(context):
    value = {name: LaunchConfiguration(name).perform(context) for name, *_ in ARGUMENTS}
    settings = ("image_transport", "bundle", "backend", "camera_motion")
    # Texts: "off" would else become false.
    given = {name: ParameterValue(value[name], value_type=str) for name in settings if value[name]}
    tracker = Node(
        package="efftam_ros",
        executable="efftam_tracker",
        name="efftam_tracker",
        namespace=value["namespace"],
        output="screen",
        parameters=[
            parameter_file(value["params"]),
            {"use_sim_time": value["use_sim_time"] == "true", **given},
        ],
        remappings=[(name, value[name]) for name in ("image", "camera_info", "attitude") if value[name]],
        ros_arguments=["--log-level", value["log_level"]],
    )
    return [tracker, operator_node(value)] if value["operator"] == "true" else [tracker]


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument(name, default_value=default, description=text, choices=choices)
        for name, default, text, choices in ARGUMENTS
    ]
    # The first name is for Fast DDS 2, the second for Fast DDS 3. A profile set by the user is kept.
    profiles = [
        SetEnvironmentVariable(name, EnvironmentVariable(name, default_value=PROFILE))
        for name in ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
    ]
    return LaunchDescription([*arguments, *profiles, OpaqueFunction(function=start_nodes)])
