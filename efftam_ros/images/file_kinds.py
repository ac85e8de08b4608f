"""What a file is by its first bytes: a bag, a video, or something that a command makes one of these."""

from __future__ import annotations

from pathlib import Path

from efftam_ros.images.stills.folder import image_files
from efftam_ros.images.streams.opening import file_url

_BAG_STARTS = (b"\x89MCAP", b"SQLite format 3")
_OTHERS = (
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -d {path}, then take {stem}"),
    (b"#ROSBAG V", "a ROS 1 bag", "rosbags-convert --src {path} --dst {stem}, then take {stem}"),
    (b"\x1f\x8b", "compressed by gzip", "gunzip {path}, then take {stem}"),
)


def is_bag(path: Path) -> bool:
    """Return whether this is a bag, whole or damaged, by its first bytes or its folder's metadata."""
    if path.is_dir():
        return (path / "metadata.yaml").is_file()
    return _first_bytes(path).startswith(_BAG_STARTS)


def is_video(path: Path) -> bool:
    """Return whether FFmpeg takes a file for a video, or a folder holds images."""
    if path.is_dir():
        return bool(image_files(path))
    import av

    try:
        with av.open(file_url(path)) as container:
            # Any text is ANSI art for it.
            return bool(container.streams.video) and container.format.name != "tty"
    except (av.error.FFmpegError, OSError):
        return False


def command_for(path: Path) -> str:
    """Return what a file is by its first bytes, neither bag nor video, and the command for it; empty: not
    known."""
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
