"""What INT8 engines were calibrated with: a small file beside them, whose hash is part of their key."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from efftam_ros.runtime.bundle import SHA256
from efftam_ros.runtime.tensorrt.store import write_atomically


@dataclass(frozen=True)
class Calibration:
    """``clip``: its name; ``frames``: how many; ``sha256``: of its pixels, the target's box, the method."""

    clip: str
    frames: int
    sha256: str

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Raises OSError and ValueError."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(fields, dict) or set(fields) != {"clip", "frames", "sha256"}:
            raise ValueError("it does not have the entries clip, frames and sha256")
        if not SHA256.fullmatch(str(fields["sha256"])):
            raise ValueError(f"its sha256 is {str(fields['sha256'])[:80]!r}")
        return cls(str(fields["clip"]), int(fields["frames"]), fields["sha256"])

    def write(self, path: Path) -> None:
        """Raises OSError."""
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())


def calibration_path(folder: Path, bundle: str) -> Path:
    """The file for the engines of a bundle in this folder."""
    return folder / f"{bundle}-int8.calibration.json"
