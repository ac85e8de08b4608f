"""The package's exceptions, each with a text of one line, and helpers that keep secrets out of such texts."""

from __future__ import annotations

import re
from itertools import takewhile


class InputError(ValueError):
    """The user's input is invalid. The text states what is wrong, the value and the remedy."""


class PipelineLostError(RuntimeError):
    """The GPU has failed permanently: no call of the pipeline will succeed again in this process."""


class BackendError(RuntimeError):
    """A back end can't run on this computer. ``reason``: what is missing; ``remedy``: how to fix it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


def one_line(error: object) -> str:
    """Return the text of an error, or of any object, without line breaks and secrets. Returns the name of the
    object's type if its text is empty."""
    return " ".join(without_secrets(str(error)).split()) or type(error).__name__


MAX_SHOWN = 80
"""Largest number of characters that a message repeats of a text from outside."""


def shown(text: object) -> str:
    """Return a value from outside in a form for errors, logs and diagnostics.

    Secrets are removed, text is quoted, and what exceeds `MAX_SHOWN` characters is cut off.
    """
    full = without_secrets(text if isinstance(text, str) else str(text))
    cut = full[:MAX_SHOWN] + "..." if len(full) > MAX_SHOWN else full
    return repr(cut) if isinstance(text, str) else " ".join(cut.split())


# The parts of an address's path that may be shown: names of video files, and the usual names of cameras'
# streams. Any other part, such as the name of a playlist, may be a secret key.
_VIDEO = re.compile(r"[\w .-]+\.(mp4|m4v|mov|mkv|webm|avi|ts|mjpe?g)", re.I)
_STREAM = re.compile(
    r"((axis|cam(era)?|cgi|ch(annels?)?|h26[45]|live|main|media|mjpe?g|mpeg|onvif|preview|profile|realmonitor|sdp"
    r"|stream(ing)?|sub|unicast|video|(?<!\d)\d{1,3}(?!\d))[._-]?)*",
    re.I,
)
_HOST = re.compile(r"[\w.-]*|\[[\da-f:.%]+\]", re.I)


def safe_address(address: str) -> str:
    """Return an address without what may be secret: with scheme, host, port, the usual names of streams, and
    the name of a video file.

    Cameras take passwords before the host, in the query and in the path, and a password may itself contain
    ``@`` and ``/``. Therefore each part that is not certainly harmless is replaced by ``***``. A text that is
    no address is returned unchanged.
    """
    scheme, separator, rest = address.partition("://")
    if not separator or scheme == "file" or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme, re.I):
        return address
    end = re.search(r"[/?#\\]", rest)
    authority, more = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    login, at, place = authority.rpartition("@")
    host, port = re.fullmatch(r"(.*?)((?::\d*|:PORT)?)", place, re.S).groups()  # type: ignore[union-attr]
    # If an @ follows, the text that was parsed as the host may be a piece of a password.
    if "@" in more or not _HOST.fullmatch(host) or (not at and ":" in host.strip("[]") and "[" not in host):
        return f"{scheme}://***"
    path, query = re.fullmatch(r"([^?#]*)(.*)", more, re.S).groups()  # type: ignore[union-attr]
    parts = path.split("/")
    known = list(takewhile(_STREAM.fullmatch, parts))
    if len(known) < len(parts):
        # A known part of the path that follows an unknown part may be a piece of the same secret. Therefore,
        # from the first unknown part on, only the name of a video is shown.
        is_video = _VIDEO.fullmatch(parts[-1]) is not None
        known += ["***"] * (len(parts) - len(known) > is_video) + parts[-1:] * is_video
    login = "***" if login else ""
    return f"{scheme}://{login}{at}{host}{port}{'/'.join(known)}{query and '?***'}"


def without_secrets(text: str) -> str:
    """Return a text in which `safe_address` has replaced each address. Plain links to web pages stay."""

    def safe(found: re.Match[str]) -> str:
        address = found[0].rstrip(".,:;)")
        is_link = address.startswith("http") and not re.search(r"[@?=&]|m3u8$", address)
        return found[0] if is_link else safe_address(address) + found[0][len(address) :]

    return re.sub(r"[a-zA-Z][\w+.-]*://[^\s'\"<>]*", safe, text) if "://" in text else text
