"""Helpers to open files and streams by FFmpeg: the URL, the choice of the track, its rate and times."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError

DEFAULT_TRACK = -1
# FFmpeg gives this rate, images/s, to a stream without times. No real stream has it, so a stream that has
# this rate after opening has no times of its own.
ASKED_RATE = Fraction(2537, 100)
UNTIMED_OPTIONS = {"framerate": "2537/100"}
# Images per second of a video for which neither the stream nor the user gives a rate.
DEFAULT_RATE = Fraction(25)
NO_TIMESTAMPS = 128
"""FFmpeg's flag AVFMT_NOTIMESTAMPS: streams of this format have no times."""
TIMES_RESTART = 512
"""FFmpeg's flag AVFMT_TS_DISCONT: times of this format may start again at any place, and no header states the
duration of the whole file."""


def file_url(path: str | Path) -> str:
    """Return a URL for FFmpeg. FFmpeg would take the part of a plain path before a colon for a protocol."""
    return f"file:{path}"


def choose_track(container: Any, track: int, name: str) -> tuple[Any, str]:
    """Return a video stream of a container, and a note for the user if there were several (else empty).

    ``track``: number of the stream among the video streams, from 0; `DEFAULT_TRACK` selects the stream that
    the file marks as default, but never a cover picture. ``name``: the file's name in error texts. Raises
    InputError if there is no video stream, or none with this number.
    """
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
    # An AVIF sequence holds its first picture a second time, as a stream of one frame.
    films = [
        s for s in found if not (s.disposition & Disposition.attached_pic or (s.frames == 1 and most > 1))
    ]
    chosen = next((s for s in films if s.disposition & Disposition.default), [*films, *found][0])
    if len(films) < 2:
        return chosen, ""
    return chosen, (
        f"holds several video tracks ({listed}): track {found.index(chosen)} is read; choose another by"
        " --track N (node: track:=N, Python: video_track=N)"
    )


def has_times(container: Any, stream: Any) -> bool:
    """Return whether a stream has times of its own. If not, FFmpeg computes times from a rate.

    ``container`` must have been opened with `UNTIMED_OPTIONS`.
    """
    is_untimed = bool(container.format.flags & NO_TIMESTAMPS)
    return not is_untimed and ASKED_RATE not in (stream.average_rate, stream.base_rate)


def rate_of(stream: Any, is_timed: bool) -> Fraction:
    """Return the images per second of a stream.

    This is the average rate of a stream with times (``is_timed``), else the rate that its codec states, else
    `DEFAULT_RATE`.
    """
    rates = (stream.average_rate, stream.guessed_rate) if is_timed else (stream.guessed_rate,)
    # FFmpeg may round `ASKED_RATE`, so rates near it are not used either.
    return next((Fraction(rate) for rate in rates if rate and abs(rate - ASKED_RATE) > 0.1), DEFAULT_RATE)
