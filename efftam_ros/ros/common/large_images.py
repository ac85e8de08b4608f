"""Remedy for the loss of images that exceed the default shared memory of Fast DDS."""

from __future__ import annotations

import os

from efftam_ros.package_files import PROFILE_VARIABLES

# This package's own camera node: it is there before its stream is, and says itself what that loses.
CAMERA_NODE = "efftam_camera"
# Load average per core above which the machine is overloaded and may lose images for that reason.
OVERLOAD = 1.5


def large_image_remedy(is_reliable: bool) -> str:
    """Return what to do when images above 0.5 MB do not arrive, for the environment and load of this node.

    ``is_reliable``: publisher and subscription are reliable already.
    """
    profile = next((os.environ[name] for name in PROFILE_VARIABLES if os.environ.get(name)), "")
    names = " and ".join(PROFILE_VARIABLES)
    if profile:
        remedy = (
            f"this node has the Fast DDS profile {profile}: start the camera driver with {names} set to it"
            " too"
        )
    else:
        remedy = (
            "images above 0.5 MB do not fit the default shared memory of Fast DDS: start BOTH the camera"
            f" driver and this node with {names} set to efftam_ros's config/fastdds_images.xml (the driver's"
            " counts most)"
        )
    if not is_reliable:
        remedy += ", or have the driver publish reliably, with image_reliability auto here"
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > OVERLOAD * cores:
        remedy += (
            f"; the machine is overloaded, which loses images as well (load {load:.0f} on {cores} cores)"
        )
    return remedy
