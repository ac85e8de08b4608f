"""Play a bag to the tracker: `ros2 launch efftam_ros replay.launch.py bag:=flight.mcap box:=100,80,40,30`.

The player, efftam_bag_player, needs no rosbag2, publishes /clock, and with rate:=0 waits for the tracker's
result of each image. The launch ends with the bag.
"""

from launch.actions import Shutdown

from efftam_ros.ros.common.image_input import TRANSPORTS
from efftam_ros.ros.common.launching import TRACKER, YES_NO, Argument, described, node, tracker_launch

OF_TRACKER = "bundle backend precision params operator operator_port operator_address namespace log_level"
FOR_TRACKER = (
    Argument("image_transport", "raw", "type of the image topic in the bag", tuple(TRANSPORTS)),
    *(TRACKER[name] for name in OF_TRACKER.split()),
)
ARGUMENTS = (
    Argument("bag", None, "bag to play: folder, .mcap or .db3"),
    Argument("topic", "", "image topic in the bag; empty: /image, or the only one"),
    Argument("rate", "1.0", "speed; 0: wait for the tracker's result of each image"),
    Argument("box", "", "X,Y,W,H in px to select on the first image; empty: the selections in the bag"),
    Argument("out", "", "new bag for the results; empty: none"),
    Argument("with_masks", "false", "record the masks too", YES_NO),
    *FOR_TRACKER,
)


def start_player(context, value):
    options = [f"--{name}={value[name]}" for name in ("topic", "rate", "box", "out") if value[name]]
    if value["with_masks"] == "true":
        options.append("--with-masks")
    ended = Shutdown(reason="the bag has ended")
    return [node("efftam_bag_player", value, arguments=[value["bag"], *options], on_exit=ended)]


def generate_launch_description():
    tracker = tracker_launch(FOR_TRACKER, image="image", camera_info="camera_info", use_sim_time="true")
    # The tracker comes before the player, which inherits the Fast DDS profile that it sets.
    return described(ARGUMENTS, start_player, tracker)
