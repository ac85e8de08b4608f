"""Start the tracker and the nodes for flight: `ros2 launch efftam_ros flight.launch.py`.

The nodes for flight are the gimbal controller, efftam_position and the MAVLink bridge.
"""

from launch.actions import OpaqueFunction

from efftam_ros.messages.bearing import camera_info_beside
from efftam_ros.package_files import PROFILE_VARIABLES
from efftam_ros.ros.common.launching import (
    CONFIG,
    TRACKER,
    YES_NO,
    Argument,
    described,
    node,
    parameter_file,
    tracker_launch,
)

ARGUMENTS = (
    *TRACKER.values(),
    Argument(
        "flight_params",
        "flight",
        "parameter file of gimbal, position and bridge: flight (the shipped one), or a path",
    ),
    Argument("links", "", "MAVLink addresses, separated by spaces; empty: from the parameter file"),
    Argument(
        "yaw_lock", "", "whether yaw rates count from north; empty: from the parameter file", ("", *YES_NO)
    ),
    Argument(
        "position", "true", "start efftam_position, which computes where on the ground the target is", YES_NO
    ),
    Argument("follow", "", "offer the service enable_follow; empty: from the parameter file", ("", *YES_NO)),
)


def start_flight(context, value):
    params = parameter_file(value["flight_params"])
    if params is None:
        raise RuntimeError(
            f"flight_params:={value['flight_params']} is no file; give a path, or flight for the shipped file"
        )
    # The tracker's launch file comes first: the other nodes' profile depends on the one that it sets.
    return [
        tracker_launch(TRACKER.values()),
        OpaqueFunction(function=lambda context: nodes_for_flight(context, value, params)),
    ]


def nodes_for_flight(context, value, params):
    """Return gimbal controller, bridge and efftam_position. ``params``: path of their parameter file."""
    everywhere = {"use_sim_time": value["use_sim_time"] == "true"}
    yaw_lock = {"yaw_lock": value["yaw_lock"] == "true"} if value["yaw_lock"] else {}
    bridge = {"links": value["links"]} if value["links"] else {}
    if value["follow"]:
        bridge["follow"] = value["follow"] == "true"
    camera_info = value["camera_info"] or camera_info_beside(value["image"])
    own = {"efftam_gimbal": yaw_lock, "efftam_mavlink": {**yaw_lock, **bridge}}
    if value["position"] == "true":
        own["efftam_position"] = {}
    # These nodes use another Fast DDS profile than the tracker, whose profile is for large images. A profile
    # that the user set is kept.
    images, flight = str(CONFIG / "fastdds_images.xml"), str(CONFIG / "fastdds_flight.xml")
    profiles = {name: flight for name in PROFILE_VARIABLES if context.environment.get(name) == images}
    return [
        node(
            name,
            value,
            parameters=[params, {**everywhere, **own[name]}],
            remappings=[("camera_info", camera_info)],
            additional_env=profiles,
        )
        for name in own
    ]


def generate_launch_description():
    return described(ARGUMENTS, start_flight)
