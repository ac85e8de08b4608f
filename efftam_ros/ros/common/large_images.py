"""Explains what to do when large images are lost, for the middleware in use."""

from __future__ import annotations

import os

from efftam_ros.package_files import CYCLONE_DDS, FAST_DDS, PROFILE_VARIABLES, ZENOH, middleware

# This package's own camera node. Before its stream delivers images, it is a publisher that sends nothing. Its
# log reports images that are lost between the stream and the node.
CAMERA_NODE = "efftam_camera"
# Load average per core above which the machine is overloaded and may lose images for that reason.
OVERLOAD = 1.5


def large_image_remedy(is_reliable: bool) -> str:
    """Return what to do when large images do not arrive, for this node's middleware and the machine's load.

    ``is_reliable``: publisher and subscription are reliable already.
    """
    remedy = _of_the_middleware()
    # With Zenoh this would not help. Zenoh sends messages of both reliabilities over TCP, and drops both if
    # the network is congested.
    if not is_reliable and not middleware().startswith(ZENOH):
        remedy += ", or set the camera driver to publish reliably, and image_reliability of this node to auto"
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > OVERLOAD * cores:
        remedy += (
            f"; the machine is overloaded, which loses images as well (load {load:.0f} on {cores} cores)"
        )
    return remedy


def _of_the_middleware() -> str:
    """Return which setting of the middleware makes room for large images."""
    used = middleware()
    if used.startswith(FAST_DDS):
        profile = next((os.environ[name] for name in PROFILE_VARIABLES if os.environ.get(name)), "")
        names = " and ".join(PROFILE_VARIABLES)
        if profile:
            return (
                f"this node has the Fast DDS profile {profile}: start the camera driver with {names} set to"
                " this file, too"
            )
        return (
            "images above 0.5 MB do not fit the default shared memory of Fast DDS: start BOTH the"
            f" camera driver and this node with {names} set to efftam_ros's config/fastdds_images.xml (this"
            " is most important for the driver)"
        )
    if used.startswith(CYCLONE_DDS):
        return (
            "Cyclone DDS sends large images by UDP: raise net.core.rmem_max (sysctl) here, and"
            " SocketReceiveBufferSize in CYCLONEDDS_URI to 10MB"
        )
    if used.startswith(ZENOH):
        return (
            "the link or this machine is too slow for the images: lower the camera's rate or size, or"
            " publish them compressed"
        )
    return f"read in the documentation of {used} how to set it up for large messages"
