"""Forms in which images are published, by their names in the parameter image_transport. Imports no ROS."""

from __future__ import annotations

from typing import NamedTuple


class Transport(NamedTuple):
    """A form in which images are published.

    ``suffix``: what image_transport appends to the topic's name. ``depth``: length of the subscription's
    queue, messages.
    """

    message_type: str
    suffix: str
    depth: int


# With depth 1 the next image replaces an image that has not been read. A video can be decoded only with all
# of its messages, so they have a longer queue.
TRANSPORTS = {
    "raw": Transport("sensor_msgs/msg/Image", "", 1),
    "compressed": Transport("sensor_msgs/msg/CompressedImage", "/compressed", 1),
    "ffmpeg": Transport("ffmpeg_image_transport_msgs/msg/FFMPEGPacket", "/ffmpeg", 30),
    "foxglove": Transport("foxglove_msgs/msg/CompressedVideo", "/foxglove", 30),
}
BY_TYPE = {transport.message_type: name for name, transport in TRANSPORTS.items()}
