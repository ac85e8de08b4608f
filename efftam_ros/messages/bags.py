"""Reads and writes ROS bags by the rosbags library, without ROS."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efftam_ros.core.errors import InputError, shown
from efftam_ros.images.coded_video import DEFINITIONS
from efftam_ros.images.file_kinds import command_for, is_bag, is_video
from efftam_ros.messages.bearing import camera_info_beside
from efftam_ros.package_files import PACKAGE, package_file, places

if TYPE_CHECKING:
    from rosbags.interfaces import Connection
    from rosbags.rosbag2 import Reader, Writer
    from rosbags.typesys.store import Typestore

IMAGE_TYPES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage", *DEFINITIONS)
SELECTION_TYPE = f"{PACKAGE}/msg/TargetSelection"
CAMERA_INFO_TYPE = "sensor_msgs/msg/CameraInfo"
STORAGES = ("mcap", "sqlite3")
BAG_SUFFIXES = (".mcap", ".db3")


def message_folder() -> Path:
    """Return the folder of this package's msg/*.msg. Raises InputError when it is not found."""
    found = package_file("msg/BoundingBox.msg")
    if found is None:
        raise InputError(
            f"the message definitions of {PACKAGE} were not found in {', '.join(map(str, places()))}; "
            "install the package again or source the workspace it was built in"
        )
    return found.parent


def open_typestore() -> Typestore:
    """Return the message types that rosbags needs to read and write bags.

    These are ROS 2's common types, the types of this package, and those of compressed video.
    """
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    types = {}
    for file in sorted(message_folder().glob("*.msg")):
        types.update(get_types_from_msg(file.read_text(encoding="utf-8"), f"{PACKAGE}/msg/{file.stem}"))
    for name, definition in DEFINITIONS.items():
        types.update(get_types_from_msg(definition, name))
    store.register(types)
    return store


@contextmanager
def reading(path: Path, report: Callable[[str], object] = str) -> Iterator[Reader]:
    """Open a bag: a folder with metadata.yaml, an .mcap file or a .db3 file.

    Channels in other formats than that of ROS 2 (CDR) are left out. ``report`` is then called with a line
    that names them. Raises InputError if the path is no bag or the bag is damaged.
    """
    from rosbags.rosbag2 import Reader, ReaderError

    _admit_other_channels()

    if not path.exists():
        raise InputError(f"{path} does not exist; give a bag (a folder with metadata.yaml, .mcap or .db3)")
    if other := command_for(path):
        raise InputError(other)
    if not is_bag(path) and path.suffix not in BAG_SUFFIXES:
        if is_video(path):
            what = "a folder of images" if path.is_dir() else "a video"
            raise InputError(f"{path} is {what}, not a bag; to track in it, run: efftam track {path}")
        if path.is_dir():
            raise InputError(
                f"{path} is not a bag: it has no metadata.yaml; give the bag's own folder, or run: ros2 bag"
                f" reindex {path}"
            )
        raise InputError(f"{path} is not a bag; give a folder with metadata.yaml, .mcap or .db3")
    try:
        reader = Reader(path)
        reader.open()
    except OSError as error:
        raise InputError(f"{path} is not a readable bag: {shown(error)}") from None
    except ReaderError as error:
        is_other = "Profile is not ros2" in str(error)
        remedy = "convert it to ROS 2 by rosbags-convert" if is_other else _repair(path)
        raise InputError(f"{path} is not a readable bag: {shown(error)}; {remedy}") from None
    except Exception as error:
        # rosbags does not detect all damage. Undetected damage causes exceptions of many types.
        raise InputError(f"{path} is broken: {_tripped(error)}; {_repair(path)}") from None
    others: dict[str, str] = {}
    for channels in (one.connections for one in getattr(reader.storage, "storages", [reader.storage])):
        others |= {c.topic: _format(c) for c in channels if _format(c) != "cdr"}
        channels[:] = [c for c in channels if _format(c) == "cdr"]
    if others:
        reader.connections[:] = [c for c in reader.connections if _format(c) == "cdr"]
        named = ", ".join(f"{topic} ({form})" for topic, form in sorted(others.items()))
        report(f"{path}: topics in other formats than that of ROS 2 are left out: {named}")
    try:
        yield reader
    finally:
        with suppress(Exception):  # closing a damaged file may fail as well
            reader.close()


def _format(channel: Any) -> str:
    return str(channel.ext.serialization_format)


def _admit_other_channels() -> None:
    """Make the rosbags library open MCAP files with channels in other formats than CDR, or without a profile.

    Without this change the library reports a schema that it can't read, or a missing profile, as damage.
    Further calls of this function change nothing.
    """
    from rosbags.rosbag2 import storage_mcap

    library: Any = storage_mcap
    known = library.get_msgdef
    if known.__module__ == __name__:
        return

    def definition(schema: Any) -> Any:
        try:
            return known(schema)
        except KeyError:
            return known(None)

    def text(record: Any) -> str:
        found = str(library.read_bytes(record).decode(errors="replace"))
        # An empty text at the beginning of a record (only its length, 4 bytes, was read until now) is the
        # profile in the header of a file that declares none. The text is replaced by "ros2", because the
        # library accepts no other profile.
        return "ros2" if not found and record.tell() == 4 else found

    library.get_msgdef, library.read_string = definition, text


def messages(reader: Reader, connections: Collection[Connection]) -> Iterator[tuple[Connection, int, bytes]]:
    """Yield connection, recording time in ns and CDR bytes of every message on these connections' topics.

    Connections are compared by topic and type only, because a topic may have several channels, and the
    files may list another QoS than metadata.yaml. Raises InputError where the bag is damaged.
    """
    wanted = {(connection.topic, connection.msgtype) for connection in connections}
    storages = getattr(reader.storage, "storages", [reader.storage])
    stored = [c for storage in storages for c in storage.connections if (c.topic, c.msgtype) in wanted]
    # With an empty list `Reader.messages` would yield the messages of all connections.
    source = reader.messages(stored) if stored else iter(())
    while True:
        try:
            found = next(source)
        except StopIteration:
            return
        except Exception as error:
            remedy = f"{_repair(Path(str(reader.path)))}, or record it again"
            raise InputError(f"{reader.path} is broken: {_tripped(error)}; {remedy}") from None
        yield found


def deserialized(store: Typestore, raw: bytes, connection: Connection) -> Any:
    """Return the message that these CDR bytes encode, as an object of the rosbags library.

    Raises InputError if they can't be decoded as a message of the connection's type.
    """
    try:
        return store.deserialize_cdr(raw, connection.msgtype)
    except Exception as error:
        raise InputError(
            f"topic {shown(connection.topic)} has a message of {len(raw)} bytes that is not a"
            f" {connection.msgtype} ({_tripped(error)}); record it again"
        ) from None


def messages_of_type(reader: Reader, store: Typestore, msgtype: str) -> Iterator[tuple[int, Any]]:
    """Yield recording time in ns and message, for every message of a type that this package defines.

    Raises InputError where the bag is damaged, or was recorded with another definition of the type.
    """
    connections = [c for c in reader.connections if c.msgtype == msgtype]
    for connection in connections:
        check_same_definition(connection, store)
    for connection, recorded, raw in messages(reader, connections):
        yield recorded, deserialized(store, raw, connection)


def _repair(path: Path) -> str:
    """Return the advice for a damaged bag: the commands that may repair it."""
    reindex = f"ros2 bag reindex {path}"
    mcap = path if path.suffix == ".mcap" else next(iter(sorted(path.glob("*.mcap"))), None)
    if mcap is None:
        return f"try {reindex}"
    recover = f"mcap recover {mcap} -o whole.mcap"
    return f"try {recover}" if mcap == path else f"try {recover}, or {reindex}"


def _tripped(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(error)}" if str(error) else type(error).__name__


@contextmanager
def writing(path: Path, storage: str) -> Iterator[Writer]:
    """Create a bag, and give its writer to a ``with`` block.

    ``path``: folder of the bag. ``storage``: "mcap" or "sqlite3". The folder appears only if the ``with``
    block ends without an exception. Otherwise nothing remains. Raises InputError if ``path`` exists already
    or can't be written.
    """
    from rosbags.rosbag2 import StoragePlugin, Writer

    if path.exists():
        raise InputError(f"{path} exists already; give the new bag another name or remove the old one")
    plugin = {"mcap": StoragePlugin.MCAP, "sqlite3": StoragePlugin.SQLITE3}[storage]
    # The names of the files in a bag begin with the bag's name. So the bag is written under its final name,
    # in a temporary folder beside its final place.
    place = path.absolute()
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
    except OSError as error:
        raise InputError(f"{path} can't be written ({error.strerror}); write it elsewhere") from None
    try:
        # The bag is moved to its final place only after it was written completely.
        with Writer(folder / place.name, version=9, storage_plugin=plugin) as writer:
            yield writer
        (folder / place.name).rename(place)
    except sqlite3.Error as error:
        raise InputError(f"{path} can't be written ({error}); free space, or write elsewhere") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def choose_topic(reader: Reader, topic: str | None, preferred: str = "/image") -> Connection:
    """Return the connection of the image topic to read.

    This is ``topic`` if it is given. Otherwise it is ``preferred`` if the bag has it, or else the bag's only
    image topic. Raises InputError, with a list of the bag's topics and their types, if there is none.
    """
    images = [c for c in reader.connections if c.msgtype in IMAGE_TYPES]
    wanted = [c for c in images if c.topic == (topic or preferred)]
    if wanted:
        return wanted[0]
    if topic is None and len({(c.topic, c.msgtype) for c in images}) == 1:
        return images[0]
    there = ", ".join(f"{c.topic} ({c.msgtype})" for c in sorted(reader.connections, key=lambda c: c.topic))
    if topic is not None and any(c.topic == topic for c in reader.connections):
        problem = f"topic {topic} does not hold images"
    elif topic is not None:
        problem = f"the bag has no topic {topic}"
    else:
        problem = "the bag has several image topics" if images else "the bag has no image topic"
    remedy = "name one with --topic" if images else "record images, compressed images or video"
    raise InputError(f"{problem}; {remedy}; the bag holds: {there or 'nothing of ROS 2'}")


def count_of(reader: Reader, connection: Connection) -> int:
    """Return how many messages the bag has on the topic of this connection, with the connection's type."""
    like = [c for c in reader.connections if (c.topic, c.msgtype) == (connection.topic, connection.msgtype)]
    return sum(c.msgcount for c in like)


def camera_info_topic(reader: Reader, image_topic: str) -> Connection | None:
    """Return the connection of an image topic's calibration; None if the bag has none.

    The calibration is the sensor_msgs/CameraInfo on the topic that `camera_info_beside` returns.
    """
    topic = camera_info_beside(image_topic)
    found = (c for c in reader.connections if (c.topic, c.msgtype) == (topic, CAMERA_INFO_TYPE))
    return next(found, None)


def check_same_definition(connection: Connection, store: Typestore) -> None:
    """Raise InputError if the topic was recorded with another definition of its message type.

    The two definitions, the bag's and the installed one, are compared by their RIHS01 hashes.
    """
    known = store.hash_rihs01(connection.msgtype)
    if connection.digest and connection.digest != known:
        raise InputError(
            f"topic {connection.topic} was recorded with another version of {connection.msgtype} (its"
            f" definition is {connection.digest[-12:]}, the installed one {known[-12:]}); use the version"
            " that recorded it"
        )
