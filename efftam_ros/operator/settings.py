"""What can be set about the page's server, with the limits of each value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from efftam_ros.core.errors import InputError


@dataclass(frozen=True)
class Settings:
    """``address`` the server listens on: this machine alone unless it is told otherwise; ``port`` 0 takes a
    free one. ``token``: what a page must send, None for a new one where one is needed. ``hosts``: further
    names of this machine. ``certificate``, ``key``: PEM files for https. ``on_operator_lost``: ``keep`` the
    target, or ``clear`` it when nobody has taken the seat for ``lease_s``. ``jpeg_quality`` 1..100.
    """

    address: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    on_operator_lost: str = "keep"
    jpeg_quality: int = 70
    lease_s: float = 10.0
    answer_s: float = 3.0
    silent_s: float = 1.0
    most_viewers: int = 16
    selections_per_s: float = 5.0
    messages_per_s: float = 200.0
    largest_message: int = 65536

    def __post_init__(self) -> None:
        _check("port", self.port, 0 <= self.port <= 65535, "0..65535")
        _check("jpeg_quality", self.jpeg_quality, 1 <= self.jpeg_quality <= 100, "1..100")
        _check("lease_s", self.lease_s, 1 <= self.lease_s <= 3600, "1..3600 s")
        _check("answer_s", self.answer_s, 0.1 <= self.answer_s <= 60, "0.1..60 s")
        _check("silent_s", self.silent_s, 0.1 <= self.silent_s <= 60, "0.1..60 s")
        _check("most_viewers", self.most_viewers, 1 <= self.most_viewers <= 100, "1..100")
        good = self.on_operator_lost in ("keep", "clear")
        _check("on_operator_lost", self.on_operator_lost, good, "keep or clear")
        if (self.certificate is None) != (self.key is None):
            raise InputError("https needs both certificate and key; give both or neither")
        for path in (self.certificate, self.key):
            if path is not None and not path.is_file():
                raise InputError(f"{path} is no file; https needs a certificate and its key as PEM files")


def _check(name: str, value: object, good: bool, limits: str) -> None:
    if not good:
        raise InputError(f"{name} is {value}; it must be {limits}")
