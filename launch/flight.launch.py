"""Start tracker, gimbal controller and MAVLink bridge: `ros2 launch efftam_ros flight.launch.py`."""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchDescription

SHARE = Path(get_package_share_directory("efftam_ros"))

# name, default, description, choices; those of the tracker go to tracker.launch.py
TRACKER_ARGUMENTS = (
    ("image", "/camera/image_raw", "topic of the images to track in", None),
    ("camera_info", "", "topic of the calibration; empty: camera_info beside the images", None),
    (
        "image_transport",
        "",
        "type of the image topic; empty: as the parameter file says",
        ["", "raw", "compressed"],
    ),
    ("bundle", "", "folder of the network bundle; empty: as the parameter file says", None),
    ("backend", "", "what computes the network; empty: as the parameter file says", None),
    (
        "camera_motion",
        "",
        "where the tracker learns the camera's motion; empty: as the parameter file says",
        ["", "auto", "topic", "off"],
    ),
    ("attitude", "gimbal_attitude", "topic of the camera's attitude, for camera_motion:=topic", None),
    ("params", "tracker", "parameter file of the tracker: tracker, desktop, jetson, or a path", None),
    ("namespace", "", "namespace of the nodes and their topics", None),
    ("operator", "false", "serve the operator's page beside the tracker", ["true", "false"]),
    ("operator_port", "8080", "port of the operator's page; 0: a free one", None),
    ("operator_address", "127.0.0.1", "address that the operator's page is served on", None),
    ("use_sim_time", "false", "follow /clock, for bags and simulators", ["true", "false"]),
    ("log_level", "info", "how much the nodes say", ["debug", "info", "warn", "error"]),
)
FLIGHT_ARGUMENTS = (
    ("flight_params", "flight", "parameter file of gimbal and bridge: flight (it ships), or a path", None),
    ("links", "", "addresses of MAVLink, separated by spaces; empty: as the parameter file says", None),
    (
        "yaw_lock",
        "",
        "yaw rates count from north; empty: as the parameter file says",
        ["", "true", "false"],
    ),
)


def parameter_file(name):
    """The shipped parameter file of that name, else the path itself."""
    shipped = SHARE / "config" / f"{name}.yaml"
    path = shipped if shipped.is_file() else Path(name).expanduser()
    if not path.is_file():
        raise RuntimeError(f"flight_params:={name} is no file, and flight is the one that ships")
    return str(path)


def start_flight(context):
    names = [name for name, *_ in (*TRACKER_ARGUMENTS, *FLIGHT_ARGUMENTS)]
    value = {name: LaunchConfiguration(name).perform(context) for name in names}
    both = {"use_sim_time": value["use_sim_time"] == "true"}
    if value["yaw_lock"]:
        both["yaw_lock"] = value["yaw_lock"] == "true"
    camera_info = value["camera_info"] or str(Path(value["image"]).parent / "camera_info")
    given = {"efftam_gimbal": {}, "efftam_mavlink": {"links": value["links"]} if value["links"] else {}}
    return [
        Node(
            package="efftam_ros",
            executable=name,
            name=name,
            namespace=value["namespace"],
            output="screen",
            parameters=[parameter_file(value["flight_params"]), {**both, **own}],
            remappings=[("camera_info", camera_info)],
            ros_arguments=["--log-level", value["log_level"]],
        )
        for name, own in given.items()
    ]


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument(name, default_value=default, description=text, choices=choices)
        for name, default, text, choices in (*TRACKER_ARGUMENTS, *FLIGHT_ARGUMENTS)
    ]
    tracker = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "tracker.launch.py")),
        launch_arguments=[(name, LaunchConfiguration(name)) for name, *_ in TRACKER_ARGUMENTS],
    )
    return LaunchDescription([*arguments, tracker, OpaqueFunction(function=start_flight)])
