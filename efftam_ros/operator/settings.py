"""Settings of the page's server, with the limits of each value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from efftam_ros.core.config import CheckedSettings, setting
from efftam_ros.core.errors import InputError


@dataclass(frozen=True)
class Settings(CheckedSettings):
    """``token``: what a page must send, None for a new one where one is needed; ``hosts``: further names of
    this computer; ``certificate``, ``key``: PEM files for https."""

    address: str = setting("127.0.0.1", "address that the page is served on: this computer alone, or 0.0.0.0")
    port: int = setting(8080, "port that the page is served on; 0: a free one", within=(0, 65535))
    token: str | None = None
    hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    on_operator_lost: str = setting(
        "keep",
        "what becomes of the target when nobody has taken the seat for lease_s",
        choices=("keep", "clear"),
    )
    jpeg_quality: int = setting(70, "quality of the pictures' JPEG", within=(1, 100))
    lease_s: float = setting(10.0, "silence after which the seat is free, s", within=(1.0, 3600.0))
    answer_s: float = setting(
        3.0, "longest wait for the tracker's answer to a command, s", within=(0.1, 60.0)
    )
    silent_s: float = setting(
        1.0,
        "time without a word after which the tracker or the gimbal's controller is called silent, s",
        within=(0.1, 60.0),
    )
    most_viewers: int = setting(16, "most pages open at a time", within=(1, 100))
    selections_per_s: float = 5.0
    messages_per_s: float = 200.0
    largest_message: int = 65536

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.certificate is None) != (self.key is None):
            raise InputError("https needs both certificate and key; give both or neither")
        for path in (self.certificate, self.key):
            if path is not None and not path.is_file():
                raise InputError(f"{path} is no file; https needs a certificate and its key as PEM files")
