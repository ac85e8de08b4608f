"""Play a bag to the tracker, in simulated time: `ros2 launch efftam_ros replay.launch.py bag:=flight.mcap`.

`ros2 bag play` plays the image topic, its calibration and recorded selections. Select with `efftam select` or
on the page (operator:=true). The launch ends with the bag. For results of every image: `efftam replay`.
"""

import math
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch.actions import ExecuteProcess, Shutdown

from efftam_ros.messages.bearing import camera_info_beside
from efftam_ros.ros.common.launching import TRACKER, Argument, described, tracker_launch

LEFT_OUT = ("stream", "calibration", "use_sim_time")
FOR_TRACKER = tuple(argument for name, argument in TRACKER.items() if name not in LEFT_OUT)
ARGUMENTS = (
    Argument("bag", None, "bag to play: folder, .mcap or .db3"),
    Argument("rate", "1.0", "speed of the clock, above 0"),
    *FOR_TRACKER,
)


def start_player(context, value):
    bag, image = Path(value["bag"]).expanduser(), value["image"]
    try:
        get_package_prefix("ros2bag")
    except PackageNotFoundError:
        raise RuntimeError(
            "ros2 bag is not installed (apt install ros-$ROS_DISTRO-rosbag2); without it:"
            f" efftam replay {bag} --topic {image} --box X,Y,W,H --out RESULTS"
        ) from None
    try:
        rate = float(value["rate"])
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise RuntimeError(f"rate:={value['rate']} is no speed; give a number above 0")
    topics = [
        image,
        value["camera_info"] or camera_info_beside(image),
        "/".join(["", *filter(None, value["namespace"].split("/")), "select"]),
    ]
    play = ["ros2", "bag", "play", str(bag), "--clock", "--rate", f"{rate:g}", "--topics", *topics]
    ended = Shutdown(reason="the bag has ended")
    return [ExecuteProcess(cmd=play, output="screen", on_exit=ended)]


def generate_launch_description():
    tracker = tracker_launch(FOR_TRACKER, use_sim_time="true")
    # The tracker comes before the player, which inherits the Fast DDS profile that it sets.
    return described(ARGUMENTS, start_player, tracker)
