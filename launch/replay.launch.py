"""Play a bag into the tracker: `ros2 launch efftam_ros replay.launch.py bag:=flight.mcap box:=100,80,40,30`.

The player is the package's own (efftam_bag_player): it needs no rosbag2, publishes /clock, and with rate:=0
waits until the tracker has answered each image. Everything ends when the bag does.
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
    ("rate", "1.0", "speed; 0: wait until the tracker has answered each image", None),
    ("box", "", "X,Y,W,H in px to select on the first image; empty: the selections in the bag", None),
    ("out", "", "new bag for the answers; empty: none", None),
    ("mask", "false", "record the masks too", ["true", "false"]),
    ("image_transport", "raw", "type of the image topic in the bag", ["raw", "compressed"]),
    ("bundle", "", "folder of the network bundle; empty: as the parameter file says", None),
    ("backend", "", "what computes the network; empty: as the parameter file says", None),
    ("params", "tracker", "parameter file: tracker, desktop, jetson (they ship), or a path", None),
    ("namespace", "", "namespace of the nodes and their topics", None),
    ("log_level", "info", "how much the nodes say", ["debug", "info", "warn", "error"]),
)
FOR_TRACKER = ("image_transport", "bundle", "backend", "params", "namespace", "log_level")


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
