"""Built engines in a folder: found by what they were built from, never half written, never another's."""

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
"""Of the key in a file's name: some file systems end at 143 characters. The .json holds all parts."""


@dataclass(frozen=True)
class EngineKey:
    """What an engine was built from and for. ``module``: the graph's name in its bundle; ``version``: as
    "10.3.0"; ``compute_capability``: as "8.7"; ``options``: what can be written as JSON."""

    module: str
    onnx_sha256: str
    library: str
    version: str
    gpu: str
    compute_capability: str
    precision: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Any]:
        """As JSON gives them back."""
        parts: dict[str, Any] = json.loads(json.dumps(asdict(self), sort_keys=True))
        return parts

    @property
    def hex(self) -> str:
        """SHA-256 of all parts."""
        return hashlib.sha256(json.dumps(self.parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class EngineRefusal:
    """Why there is no engine to load, in one line."""

    reason: str


class EngineStore:
    """Engines and the reports of their gate as ``<bundle>-<module>-<precision>-<key>.engine`` and ``.json``.

    An engine is there once its .json is, which is written last. Both are written under temporary names,
    synced and renamed. ``name`` is the bundle's in every call.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held = threading.local()

    def path(self, name: str, key: EngineKey) -> Path:
        """Of the engine; its report ends in .json instead."""
        return self.folder / f"{self._prefix(name, key)}{key.hex[:KEY_DIGITS]}.engine"

    def load(self, name: str, key: EngineKey) -> bytes | EngineRefusal:
        """The engine, or why not: none built, built from another graph, for another GPU or by another
        version, damaged, or another module's. Raises InputError when the folder can't be read or when
        others may write there: an engine is code, and its report lies beside it."""
        path = self.path(name, key)
        self._check_owned(path)
        with self._refusing(path):
            report = self._entry(path)
            if report is None:
                return EngineRefusal(self._why_missing(name, key))
            different = _difference(key, report.get("key"))
            if different:
                return EngineRefusal(f"{path.name} {different[1]}")
            try:
                plan = path.read_bytes()
            except FileNotFoundError:
                return EngineRefusal(f"{path.name} is gone, only its report is left")
        if len(plan) != report.get("bytes"):
            return EngineRefusal(
                f"{path.name} has {len(plan)} bytes instead of {report.get('bytes')}: cut short"
            )
        if hashlib.sha256(plan).hexdigest() != report.get("sha256"):
            return EngineRefusal(f"{path.name} is damaged: its sha256 is not the one in its report")
        return plan

    def report(self, name: str, key: EngineKey) -> dict[str, Any] | None:
        """What `put` was given beside the engine; None where `load` would refuse."""
        if isinstance(self.load(name, key), EngineRefusal):
            return None
        entry = self._entry(self.path(name, key))
        return None if entry is None else dict(entry["report"])

    def put(self, name: str, key: EngineKey, plan: bytes, report: Mapping[str, Any]) -> None:
        """Keep an engine, in place of one of the same key. Raises InputError: full disk, read-only
        folder."""
        path = self.path(name, key)
        entry = {
            "key": key.parts,
            "sha256": hashlib.sha256(plan).hexdigest(),
            "bytes": len(plan),
            "report": dict(report),
        }
        text = json.dumps(entry, indent=1, sort_keys=True)
        with self.lock(name, key), self._refusing(path):
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
        """The engines of a set by module, all built and kept where `load` refuses one of them, or with
        ``force``. Of several processes one builds, the others wait and load what it built.

        ``build`` gives each module's engine and report; what it raises is passed on and nothing is kept.
        ``message`` is told in one line why engines are built and whom it waits for. Raises InputError as
        `put`, before building.
        """
        found = None if force else self._load_all(name, keys)
        if isinstance(found, dict):
            return found
        with self.lock(name, keys[0], message):
            found = EngineRefusal("asked for") if force else self._load_all(name, keys)
            if isinstance(found, dict):
                return found
            message(f"building: {found.reason}")
            built = build()
            for key in keys:
                self.put(name, key, *built[key.module])
        return {key.module: built[key.module][0] for key in keys}

    def _load_all(self, name: str, keys: Sequence[EngineKey]) -> dict[str, bytes] | EngineRefusal:
        plans = {}
        for key in keys:
            found = self.load(name, key)
            if isinstance(found, EngineRefusal):
                return found
            plans[key.module] = found
        return plans

    @contextlib.contextmanager
    def lock(
        self, name: str, key: EngineKey, message: Callable[[str], None] = lambda text: None
    ) -> Iterator[None]:
        """Keep other processes and threads from building or writing this engine; a killed holder lets go.

        ``message`` is told when there is something to wait for. Raises InputError as `put`.
        """
        path = self.path(name, key).with_suffix(".lock")
        self._check_owned(path)
        held: set[Path] = self._held.__dict__.setdefault("paths", set())
        if path in held:
            yield
            return
        with self._refusing(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with self._refusing(path):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    message(f"waiting: another process is building {path.stem}")
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                for left in self.folder.glob(
                    f"{glob.escape(path.stem)}.*.tmp"
                ):  # by killed writers: no one else holds it
                    left.unlink(missing_ok=True)
            held.add(path)
            yield
        finally:
            held.discard(path)
            os.close(descriptor)

    def _check_owned(self, path: Path) -> None:
        with self._refusing(path):
            for part in (self.folder, path):
                check_private(part)

    def _prefix(self, name: str, key: EngineKey) -> str:
        if Path(name).name != name:
            raise InputError(f"bundle name {name!r} is not the name of a file; export the bundle again")
        return f"{name}-{key.module}-{key.precision}-"

    def _entry(self, path: Path) -> dict[str, Any] | None:
        """What the .json beside an engine says; None where there is none, {} where it can't be read as
        one."""
        try:
            entry = json.loads(path.with_suffix(".json").read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return {}
        return entry if isinstance(entry, dict) and isinstance(entry.get("report"), dict) else {}

    def _why_missing(self, name: str, key: EngineKey) -> str:
        """What the nearest engine of the same module and precision was built from, if there is one."""
        others = self.folder.glob(f"{glob.escape(self._prefix(name, key))}*.json")
        differences = [_difference(key, (self._entry(other) or {}).get("key")) for other in others]
        _, nearest = max((d for d in differences if d is not None and d[0] >= 0), default=(-1, ""))
        missing = f"there is no engine for {name} {key.module} {key.precision} in {self.folder}"
        return f"{missing} that fits; one there {nearest}" if nearest else missing

    @contextlib.contextmanager
    def _refusing(self, path: Path) -> Iterator[None]:
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
    """Put ``data`` at ``path``, whole or not at all, also when power fails. Raises OSError, leaving
    nothing."""
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


# From what makes an engine least usable to what makes it most nearly fit.
_PARTS = (
    ("module", "is of module {}, not {}"),
    ("onnx_sha256", "was built from another graph ({:.12}, now {:.12})"),
    ("gpu", "was built for another GPU ({}, here {})"),
    ("compute_capability", "was built for compute capability {}, here {}"),
    ("library", "was built by {}, here {}"),
    ("version", "was built by another version ({}, here {})"),
    ("precision", "has precision {}, wanted {}"),
    ("options", "was built with other options ({}, now {})"),
)


def _difference(key: EngineKey, found: Any) -> tuple[int, str] | None:
    """The first part of a .json's key that differs: its number in the list, -1 where there is no key in
    it."""
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
