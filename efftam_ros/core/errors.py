"""Exceptions that cross module boundaries; the text of each is one line."""

from __future__ import annotations

import re
from itertools import takewhile


class InputError(ValueError):
    """Invalid input. The text states what is wrong, the value and the remedy."""


class PipelineLostError(RuntimeError):
    """The device behind a pipeline has failed permanently: no call will succeed again in this process."""


class BackendError(RuntimeError):
    """A back end exists but can't run here. ``reason``: what is missing; ``remedy``: how to fix it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


def one_line(error: object) -> str:
    """Return an error's text, or any text, without line breaks and secrets; the type's name if it is
    empty."""
    return " ".join(without_secrets(str(error)).split()) or type(error).__name__


MAX_SHOWN = 80
"""Most characters of an external text repeated in a message."""


def shown(text: object) -> str:
    """Return an external value for errors, logs and diagnostics: text is quoted; at most 80 characters."""
    full = without_secrets(text if isinstance(text, str) else str(text))
    cut = full[:MAX_SHOWN] + "..." if len(full) > MAX_SHOWN else full
    return repr(cut) if isinstance(text, str) else " ".join(cut.split())


# Names of files that identify a video, and what cameras' manuals call their streams; all else in a path,
# as a playlist's name, may be a key.
_VIDEO = re.compile(r"[\w .-]+\.(mp4|m4v|mov|mkv|webm|avi|ts|mjpe?g)", re.I)
_STREAM = re.compile(
    r"((axis|cam(era)?|cgi|ch(annels?)?|h26[45]|live|main|media|mjpe?g|mpeg|onvif|preview|profile|realmonitor|sdp"
    r"|stream(ing)?|sub|unicast|video|(?<!\d)\d{1,3}(?!\d))[._-]?)*",
    re.I,
)
_HOST = re.compile(r"[\w.-]*|\[[\da-f:.%]+\]", re.I)


def safe_address(address: str) -> str:
    """Return an address as it may be shown: scheme, host, port, usual names of streams, and that of a video
    file.

    Cameras take passwords before the host, in the query and in the path, and users write them with ``@`` and
    ``/`` in them: what is not surely harmless is replaced by ``***``. Other texts stay.
    """
    scheme, separator, rest = address.partition("://")
    if not separator or scheme == "file" or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme, re.I):
        return address
    end = re.search(r"[/?#\\]", rest)
    authority, more = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    login, at, place = authority.rpartition("@")
    host, port = re.fullmatch(r"(.*?)((?::\d*|:PORT)?)", place, re.S).groups()  # type: ignore[union-attr]
    # An @ behind the host: the host may be a piece of the password.
    if "@" in more or not _HOST.fullmatch(host) or (not at and ":" in host.strip("[]") and "[" not in host):
        return f"{scheme}://***"
    path, query = re.fullmatch(r"([^?#]*)(.*)", more, re.S).groups()  # type: ignore[union-attr]
    parts = path.split("/")
    known = list(takewhile(_STREAM.fullmatch, parts))
    if len(known) < len(parts):
        # Behind an unknown part, a known one may be a piece of it, but for the video's name.
        is_video = _VIDEO.fullmatch(parts[-1]) is not None
        known += ["***"] * (len(parts) - len(known) > is_video) + parts[-1:] * is_video
    login = "***" if login else ""
    return f"{scheme}://{login}{at}{host}{port}{'/'.join(known)}{query and '?***'}"


def without_secrets(text: str) -> str:
    """Return a text with the addresses in it shown as by `safe_address`; plain links to web pages stay."""

    def safe(found: re.Match[str]) -> str:
        address = found[0].rstrip(".,:;)")
        is_link = address.startswith("http") and not re.search(r"[@?=&]|m3u8$", address)
        return found[0] if is_link else safe_address(address) + found[0][len(address) :]

    return re.sub(r"[a-zA-Z][\w+.-]*://[^\s'\"<>]*", safe, text) if "://" in text else text
