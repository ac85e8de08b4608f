"""What files and streams share when FFmpeg opens them: the name, the track, whether there are times."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError

DEFAULT_TRACK = -1
# The rate that FFmpeg is asked to take where a stream has no times: no stream has it by itself, so that one
# whose rate it becomes has none.
ASKED_RATE = Fraction(2537, 100)
UNTIMED_OPTIONS = {"framerate": "2537/100"}
# Images per second where neither the stream nor the user gives a rate.
DEFAULT_RATE = Fraction(25)
NO_TIMESTAMPS = 128
"""FFmpeg's AVFMT_NOTIMESTAMPS: streams of this format have no times."""
TIMES_RESTART = 512
"""FFmpeg's AVFMT_TS_DISCONT: times of this format may begin anew, and no header contains the whole
duration."""


def file_url(path: str | Path) -> str:
    """Return the name of a file for FFmpeg, which takes the part before a colon for a protocol otherwise."""
    return f"file:{path}"


def choose_track(container: Any, track: int, name: str) -> tuple[Any, str]:
    """Return the video stream of this number among the container's, `DEFAULT_TRACK`: the default one, no
    cover picture; and a note where there is a choice. Raises InputError where there is none of the number."""
    from av.stream import Disposition

    found = list(container.streams.video)
    if not found:
        raise InputError(f"{name} holds no video stream; give a video file, a stream or a folder of images")
    listed = "; ".join(
        f"{i}: {s.codec_context.name} {s.codec_context.width}x{s.codec_context.height}"
        + (", cover picture" if s.disposition & Disposition.attached_pic else "")
        + (", default" if s.disposition & Disposition.default else "")
        for i, s in enumerate(found)
    )
    if track != DEFAULT_TRACK:
        if not 0 <= track < len(found):
            raise InputError(f"{name} has no video track {track}; it has {listed}")
        return found[track], ""
    most = max(s.frames for s in found)
    # A sequence of AVIF holds its first picture once more.
    films = [
        s for s in found if not (s.disposition & Disposition.attached_pic or (s.frames == 1 and most > 1))
    ]
    chosen = next((s for s in films if s.disposition & Disposition.default), [*films, *found][0])
    if len(films) < 2:
        return chosen, ""
    return chosen, (
        f"holds several video tracks ({listed}): {found.index(chosen)} is read, another one by --track N"
        " (node: track:=N, Python: video_track=N)"
    )


def has_times(container: Any, stream: Any) -> bool:
    """Return whether the stream has times of its own; else FFmpeg makes them up from a rate. For a container
    that was opened with `UNTIMED_OPTIONS`."""
    is_untimed = bool(container.format.flags & NO_TIMESTAMPS)
    return not is_untimed and ASKED_RATE not in (stream.average_rate, stream.base_rate)


def rate_of(stream: Any, is_timed: bool) -> Fraction:
    """Images per second: the average of a stream with times, else the codec's rate, or `DEFAULT_RATE`."""
    rates = (stream.average_rate, stream.guessed_rate) if is_timed else (stream.guessed_rate,)
    # FFmpeg may round the rate that was asked for.
    return next((Fraction(rate) for rate in rates if rate and abs(rate - ASKED_RATE) > 0.1), DEFAULT_RATE)
