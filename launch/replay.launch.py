"""Play a bag to the tracker: `ros2 launch efftam_ros replay.launch.py bag:=flight.mcap box:=100,80,40,30`.

The player, efftam_bag_player, needs no rosbag2, publishes /clock, and with rate:=0 waits for the tracker's
result of each image. The launch ends with the bag.
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction, Shutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchDescription

SHARE = Path(get_package_share_directory("efftam_ros"))

# name, default, description, choices; None: must be given
ARGUMENTS = (
    ("bag", None, "bag to play: folder, .mcap or .db3", None),
    ("topic", "", "image topic in the bag; empty: /image, or the only one", None),
    ("rate", "1.0", "speed; 0: wait for the tracker's result of each image", None),
    ("box", "", "X,Y,W,H in px to select on the first image; empty: the selections in the bag", None),
    ("out", "", "new bag for the results; empty: none", None),
    ("mask", "false", "record the masks too", ["true", "false"]),
    ("image_transport", "raw", "type of the image topic in the bag", ["raw", "compressed"]),
    ("bundle", "", "folder of the network bundle; empty: from the parameter file", None),
    ("backend", "", "back end; empty: from the parameter file", None),
    ("params", "tracker", "parameter file: tracker, desktop, jetson (shipped), or a path", None),
    ("operator", "false", "serve the operator's page beside the tracker", ["true", "false"]),
    ("operator_port", "8080", "port of the operator's page; 0: a free one", None),
    ("operator_address", "127.0.0.1", "address that the operator's page is served on", None),
    ("namespace", "", "namespace of the nodes and their topics", None),
    ("log_level", "info", "log level of the nodes", ["debug", "info", "warn", "error"]),
)
FOR_TRACKER = (
    "image_transport",
    "bundle",
    "backend",
    "params",
    "operator",
    "operator_port",
    "operator_address",
    "namespace",
    "log_level",
)


def start_player(context):
    value = {name: LaunchConfiguration(name).perform(context) for name, *_ in ARGUMENTS}
    options = [f"--{name}={value[name]}" for name in ("topic", "rate", "box", "out") if value[name]]
    if value["mask"] == "true":
        options.append("--mask")
    player = Node(
        package="efftam_ros",
        executable="efftam_bag_player",
        name="efftam_bag_player",
        namespace=value["namespace"],
        output="screen",
        arguments=[value["bag"], *options],
        ros_arguments=["--log-level", value["log_level"]],
        on_exit=Shutdown(reason="the bag has ended"),
    )
    return [player]


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument(name, default_value=default, description=text, choices=choices)
        for name, default, text, choices in ARGUMENTS
    ]
    settings = {name: LaunchConfiguration(name) for name in FOR_TRACKER}
    settings |= {"image": "image", "camera_info": "camera_info", "use_sim_time": "true"}
    # Comes before the player, which inherits the Fast DDS profile that it sets.
    tracker = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "tracker.launch.py")),
        launch_arguments=settings.items(),
    )
    return LaunchDescription([*arguments, tracker, OpaqueFunction(function=start_player)])
