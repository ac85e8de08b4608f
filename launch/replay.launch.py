"""Play a bag to the tracker in simulated time: `ros2 launch efftam_ros replay.launch.py bag:=flight.mcap`.

`ros2 bag play` publishes the images, their calibration and the recorded selections. Select a target with
`efftam select` or on the page (operator:=true). The launch ends when the bag ends. To process every image of
a bag, use `efftam replay` instead.
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


def start_replay(context, value):
    bag, image = Path(value["bag"]).expanduser(), value["image"]
    try:
        get_package_prefix("ros2bag")
    except PackageNotFoundError:
        raise RuntimeError(
            "ros2 bag is not installed; run apt install ros-$ROS_DISTRO-rosbag2, or without it:"
            f" efftam replay {bag} --topic {image} --box X,Y,W,H --out RESULTS"
        ) from None
    try:
        rate = float(value["rate"])
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise RuntimeError(f"rate:={value['rate']} is not a speed; give a number above 0")
    topics = [
        image,
        value["camera_info"] or camera_info_beside(image),
        "/".join(["", *filter(None, value["namespace"].split("/")), "select"]),
    ]
    play = ["ros2", "bag", "play", str(bag), "--clock", "--rate", f"{rate:g}", "--topics", *topics]
    ended = Shutdown(reason="the bag has ended")
    tracker = tracker_launch(FOR_TRACKER, use_sim_time="true")
    # The tracker's launch file comes first: it sets the Fast DDS profile, which the player inherits.
    return [tracker, ExecuteProcess(cmd=play, output="screen", on_exit=ended)]


def generate_launch_description():
    return described(ARGUMENTS, start_replay)
