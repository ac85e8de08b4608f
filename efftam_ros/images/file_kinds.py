"""Detects bags and videos by their content, and names the command that converts some other kinds of files."""

from __future__ import annotations

from pathlib import Path

from efftam_ros.images.stills.folder import image_files
from efftam_ros.images.streams.opening import file_url

_BAG_STARTS = (b"\x89MCAP", b"SQLite format 3")
_OTHERS = (
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -d {path}, then use {stem}"),
    (b"#ROSBAG V", "a ROS 1 bag", "rosbags-convert --src {path} --dst {stem}, then use {stem}"),
    (b"\x1f\x8b", "compressed by gzip", "gunzip {path}, then use {stem}"),
)


def is_bag(path: Path) -> bool:
    """Return whether a path is a bag, complete or damaged: a file by its first bytes, a folder by its
    metadata.yaml."""
    if path.is_dir():
        return (path / "metadata.yaml").is_file()
    return _first_bytes(path).startswith(_BAG_STARTS)


def is_video(path: Path) -> bool:
    """Return whether FFmpeg can open a file as a video, or a folder holds images."""
    if path.is_dir():
        return bool(image_files(path))
    import av

    try:
        with av.open(file_url(path)) as container:
            # FFmpeg opens any text file as a video of the format "tty" (ANSI art).
            return bool(container.streams.video) and container.format.name != "tty"
    except (av.error.FFmpegError, OSError):
        return False


def command_for(path: Path) -> str:
    """Return a line that names the kind of a file that can't be read directly, and the command to convert it.

    The kind is detected by the file's first bytes. Empty for a file of any other kind.
    """
    first = _first_bytes(path)
    for start, what, command in _OTHERS:
        if first.startswith(start):
            return f"{path} is {what}; run: {command.format(path=path, stem=path.with_suffix(''))}"
    return ""


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError:
        return b""
