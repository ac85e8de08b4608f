"""Engine store: a folder of built engines, written atomically and found by key."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError

KEY_DIGITS = 16
"""Digits of the key in file names, which some file systems limit to 143 characters; the .json has all
parts."""


@dataclass(frozen=True)
class EngineKey:
    """What an engine was built from and for.

    ``onnx_sha256``: of the graph and its weights; ``version`` of TensorRT, such as "10.3.0";
    ``multiprocessors``: boards of one name and capability differ in it, as Jetson Orins do; ``memory_gib``:
    rounded up to an even number; ``options``: of the build, as JSON values.
    """

    module: str
    onnx_sha256: str
    version: str
    gpu: str
    compute_capability: str
    multiprocessors: int
    memory_gib: int
    precision: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Any]:
        """All parts, as JSON values."""
        return json.loads(json.dumps(asdict(self), sort_keys=True))

    @property
    def hex(self) -> str:
        """SHA-256 of all parts."""
        return hashlib.sha256(json.dumps(self.parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class EngineMissing:
    """The reason why no engine can be loaded, in one line."""

    reason: str


class EngineStore:
    """Engines and their reports as ``<bundle>-<module>-<precision>-<key>.engine`` and ``.json``.

    Files are written under temporary names, synced and renamed, the .json last: an engine without one does
    not exist. ``name`` is the name of the bundle in all methods, a `bundle.PLAIN_NAME`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held = threading.local()

    def path(self, name: str, key: EngineKey) -> Path:
        """Path of the engine; its report has the suffix .json."""
        return self.folder / f"{self._prefix(name, key)}{key.hex[:KEY_DIGITS]}.engine"

    def load(self, name: str, key: EngineKey) -> bytes | EngineMissing:
        """Return the engine, or the reason why there is none: not built, built from another graph, for
        another GPU or by another version, damaged, or of another module. Raises InputError when the folder
        can't be read or when every user may write there: an engine is code, and its report lies beside it."""
        path = self.path(name, key)
        self._check_owned(path)
        with self._explaining_os_errors(path):
            report = self._entry(path)
            if report is None:
                return EngineMissing(self._why_missing(name, key))
            different = _difference(key, report.get("key"))
            if different:
                return EngineMissing(f"{path.name} {different[1]}")
            try:
                plan = path.read_bytes()
            except FileNotFoundError:
                return EngineMissing(f"{path.name} is missing, only its report exists")
        if len(plan) != report.get("bytes"):
            return EngineMissing(
                f"{path.name} has {len(plan)} bytes instead of {report.get('bytes')}: truncated"
            )
        if hashlib.sha256(plan).hexdigest() != report.get("sha256"):
            return EngineMissing(f"{path.name} is damaged: its sha256 is not the one in its report")
        return plan

    def report(self, name: str, key: EngineKey) -> dict[str, Any] | None:
        """Return the report stored with the engine; None where `load` returns no engine."""
        if isinstance(self.load(name, key), EngineMissing):
            return None
        entry = self._entry(self.path(name, key))
        return None if entry is None else dict(entry["report"])

    def put(self, name: str, key: EngineKey, plan: bytes, report: Mapping[str, Any]) -> None:
        """Store an engine, replacing one of the same key. Raises InputError: full disk, read-only folder."""
        path = self.path(name, key)
        entry = {
            "key": key.parts,
            "sha256": hashlib.sha256(plan).hexdigest(),
            "bytes": len(plan),
            "report": dict(report),
        }
        text = json.dumps(entry, indent=1, sort_keys=True)
        with self.lock(name, key), self._explaining_os_errors(path):
            # The report last: an engine without one does not count as stored.
            write_atomically(path, plan)
            write_atomically(path.with_suffix(".json"), text.encode())

    def load_or_build(
        self,
        name: str,
        keys: Sequence[EngineKey],
        build: Callable[[], Mapping[str, tuple[bytes, Mapping[str, Any]]]],
        message: Callable[[str], None] = lambda text: None,
        force: bool = False,
    ) -> dict[str, bytes]:
        """Return the engines of a set by module; where one is missing, or with ``force``, all are built and
        stored. Of several processes one builds, the others wait and load. ``build`` returns engine and report
        by module; when it raises, nothing is stored. ``message`` gets a line on why engines are built and on
        waiting. Raises InputError as `put`, before anything is built."""
        found = None if force else self._load_all(name, keys)
        if isinstance(found, dict):
            return found
        # Another process may have built them while this one waited for the lock.
        with self.lock(name, keys[0], message):
            found = EngineMissing("requested") if force else self._load_all(name, keys)
            if isinstance(found, dict):
                return found
            message(f"building: {found.reason}")
            built = build()
            for key in keys:
                self.put(name, key, *built[key.module])
        return {key.module: built[key.module][0] for key in keys}

    def _load_all(self, name: str, keys: Sequence[EngineKey]) -> dict[str, bytes] | EngineMissing:
        plans = {}
        for key in keys:
            found = self.load(name, key)
            if isinstance(found, EngineMissing):
                return found
            plans[key.module] = found
        return plans

    @contextlib.contextmanager
    def lock(
        self, name: str, key: EngineKey, message: Callable[[str], None] = lambda text: None
    ) -> Iterator[None]:
        """Lock an engine against other processes and threads; the lock of a killed process is released.

        ``message`` is called when another process holds the lock. Raises InputError as `put`.
        """
        path = self.path(name, key).with_suffix(".lock")
        self._check_owned(path)
        held: set[Path] = self._held.__dict__.setdefault("paths", set())
        if path in held:
            yield
            return
        with self._explaining_os_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with self._explaining_os_errors(path):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    message(f"waiting: another process is building {path.stem}")
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                for left in self.folder.glob(f"{glob.escape(path.stem)}.*.tmp"):  # left by killed writers
                    left.unlink(missing_ok=True)
            held.add(path)
            yield
        finally:
            held.discard(path)
            os.close(descriptor)

    def _check_owned(self, path: Path) -> None:
        with self._explaining_os_errors(path):
            for part in (self.folder, path):
                check_private(part)

    def _prefix(self, name: str, key: EngineKey) -> str:
        return f"{name}-{key.module}-{key.precision}-"

    def _entry(self, path: Path) -> dict[str, Any] | None:
        """Content of an engine's .json; None without one, {} where it is damaged."""
        try:
            entry = json.loads(path.with_suffix(".json").read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return {}
        return entry if isinstance(entry, dict) and isinstance(entry.get("report"), dict) else {}

    def _why_missing(self, name: str, key: EngineKey) -> str:
        """Return why no engine has this key, with the difference of the most similar one that exists."""
        others = self.folder.glob(f"{glob.escape(self._prefix(name, key))}*.json")
        differences = [_difference(key, (self._entry(other) or {}).get("key")) for other in others]
        _, nearest = max((d for d in differences if d is not None and d[0] >= 0), default=(-1, ""))
        missing = f"there is no engine for {name} {key.module} {key.precision} in {self.folder}"
        return f"{missing} that fits; one there {nearest}" if nearest else missing

    @contextlib.contextmanager
    def _explaining_os_errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"engine store {self.folder}: {path.name} can't be read or written ({error.strerror});"
                " free space there, or give a folder that can be written"
            ) from error


def check_private(path: Path) -> None:
    """Raise InputError when every user may write this folder or file of engines, which are run as they are;
    one that is not there passes. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_mode & stat.S_IWOTH:
            raise InputError(
                f"every user may write {path}, and engines from there are run as they are; chmod o-w {path},"
                " or give a folder of your own"
            )


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically, also on power failure. Raises OSError without leaving a file."""
    descriptor, temporary = tempfile.mkstemp(prefix=f"{path.stem}.", suffix=".tmp", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# Ordered from the most to the least serious difference.
_PARTS = (
    ("module", "is of module {}, not {}"),
    ("onnx_sha256", "was built from another graph ({:.12}, now {:.12})"),
    ("gpu", "was built for another GPU ({}, here {})"),
    ("compute_capability", "was built for compute capability {}, here {}"),
    ("multiprocessors", "was built for a board with {} multiprocessors, here {}"),
    ("memory_gib", "was built for a board with {} GiB, here {}"),
    ("version", "was built by another version ({}, here {})"),
    ("precision", "has precision {}, wanted {}"),
    ("options", "was built with other options ({}, now {})"),
)


def _difference(key: EngineKey, found: Any) -> tuple[int, str] | None:
    """Return the first part of a .json's key that differs: its index in `_PARTS` (-1: damaged) and a text."""
    wanted = key.parts
    if (
        not isinstance(found, dict)
        or set(found) != set(wanted)
        or any(type(found[part]) is not type(wanted[part]) for part in wanted)
    ):
        return -1, "has a damaged report"
    for number, (part, text) in enumerate(_PARTS):
        old, new = found[part], wanted[part]
        if old != new:
            if isinstance(new, dict):
                changed = sorted(n for n in {*old, *new} if old.get(n) != new.get(n))
                old, new = ({n: options.get(n) for n in changed} for options in (old, new))
            return number, text.format(old, new)
    return None
