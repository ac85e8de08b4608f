"""Stores engines in a folder. The key of an engine states from what and for which GPU it was built."""

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
"""Number of hexadecimal digits of the key's hash in file names.

The number is small, because some file systems limit names to 143 characters. The report has the whole key.
"""


@dataclass(frozen=True)
class EngineKey:
    """Everything on which an engine depends.

    Attributes:
        module: Name of the graph.
        onnx_sha256: Hash of the graph and its weights.
        version: Version of TensorRT, such as "10.3.0".
        gpu: Name of the GPU.
        compute_capability: Compute capability of the GPU, such as "8.7".
        multiprocessors: Number of the GPU's multiprocessors. It differs between Jetson Orin boards, whose
            GPUs have the same name and compute capability.
        memory_gib: Memory of the GPU, GiB, rounded up to an even number.
        precision: "fp32", "fp16" or "int8".
        options: Options of the build, as JSON values.
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
        """All attributes as JSON values."""
        return json.loads(json.dumps(asdict(self), sort_keys=True))

    @property
    def hex(self) -> str:
        """SHA-256 of all attributes, hexadecimal."""
        return hashlib.sha256(json.dumps(self.parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class EngineMissing:
    """States that no engine can be loaded. ``reason``: why, in one line."""

    reason: str


class EngineStore:
    """A folder with engines and their reports.

    An engine is in the file ``<bundle>-<graph>-<precision>-<key>.engine``, and its report in a file of the
    same name with the suffix ``.json``. Files are written under temporary names and then renamed. The report
    is written last, and an engine without a report is not used. So no incomplete engine is ever loaded. In
    all methods ``name`` is the name of the bundle, which matches `bundle.PLAIN_NAME`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held = threading.local()

    def path(self, name: str, key: EngineKey) -> Path:
        """Return the path of the file with the engine that has this key."""
        return self.folder / f"{self._prefix(name, key)}{key.hex[:KEY_DIGITS]}.engine"

    def load(self, name: str, key: EngineKey) -> bytes | EngineMissing:
        """Return the serialized engine that has this key, or the reason why it can't be loaded.

        Reasons are that it was not built, that it is damaged, or that it was built from another graph, for
        another GPU or by another version of TensorRT. Raises InputError if the folder can't be read, or if
        every user may write there. An engine contains code, so it is loaded only from a safe folder.
        """
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
        """Return the report that is stored with an engine; None where `load` returns no engine."""
        if isinstance(self.load(name, key), EngineMissing):
            return None
        entry = self._entry(self.path(name, key))
        return None if entry is None else dict(entry["report"])

    def put(self, name: str, key: EngineKey, plan: bytes, report: Mapping[str, Any]) -> None:
        """Store a serialized engine and its report, in place of an engine that has the same key.

        Raises InputError if the folder can't be written or the disk is full.
        """
        path = self.path(name, key)
        entry = {
            "key": key.parts,
            "sha256": hashlib.sha256(plan).hexdigest(),
            "bytes": len(plan),
            "report": dict(report),
        }
        text = json.dumps(entry, indent=1, sort_keys=True)
        with self.lock(name, key), self._explaining_os_errors(path):
            # The report is written last, because an engine without a report counts as not stored.
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
        """Return the serialized engines with these keys, by graph. Build and store all if one is missing.

        If several processes call this, one builds, and the others wait and then load the engines.

        Args:
            name: Name of the bundle.
            keys: Key of each engine.
            build: Builds all engines and returns engine and report by graph. If it raises an exception,
                nothing is stored.
            message: Is called with a line of text before engines are built, which states why, and before this
                process waits for another one.
            force: Whether engines are built although all are stored.

        Raises:
            InputError: The folder can't be read or written, or every user may write there. Such a folder is
                noticed before anything is built.
        """
        found = None if force else self._load_all(name, keys)
        if isinstance(found, dict):
            return found
        # The engines are searched for once more after the lock is obtained, because another process may have
        # built them while this one waited.
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
        """Lock the file of an engine against other processes and threads during a ``with`` block.

        The system releases the lock of a process that is killed. A thread that has the lock already may enter
        again. ``message`` is called with a line if another process has the lock. Raises InputError if the
        folder can't be written or every user may write there.
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
                # Temporary files can only be those of killed processes, because this one has the lock.
                for left in self.folder.glob(f"{glob.escape(path.stem)}.*.tmp"):
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
        """Return the content of the report of the engine ``path``; None without one, {} if it is damaged."""
        try:
            entry = json.loads(path.with_suffix(".json").read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return {}
        return entry if isinstance(entry, dict) and isinstance(entry.get("report"), dict) else {}

    def _why_missing(self, name: str, key: EngineKey) -> str:
        """Return why no engine has this key.

        The text contains how the most similar stored engine differs, if there is one for the same graph and
        precision.
        """
        others = self.folder.glob(f"{glob.escape(self._prefix(name, key))}*.json")
        differences = [_difference(key, (self._entry(other) or {}).get("key")) for other in others]
        _, nearest = max((d for d in differences if d is not None and d[0] >= 0), default=(-1, ""))
        missing = f"there is no engine for {name} {key.module} {key.precision} in {self.folder}"
        return f"{missing} that fits; the most similar one {nearest}" if nearest else missing

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
    """Raise InputError if every user may write this folder or file of engines.

    Engines contain code, which is run without a further check. A path that does not exist is accepted. Raises
    OSError if the path can't be examined.
    """
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_mode & stat.S_IWOTH:
            raise InputError(
                f"every user may write {path}, and engines contain code that is run; run chmod o-w {path}, or"
                " give a folder of your own"
            )


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to a file, which has either its old or its new content even after a power failure.

    Raises OSError. No temporary file remains then.
    """
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


# For each part of a key, a text that states how a stored engine differs in this part. The braces stand for
# the stored and the wanted value. The most serious difference comes first.
_PARTS = (
    ("module", "is of module {}, not {}"),
    ("onnx_sha256", "was built from another graph ({:.12}, now {:.12})"),
    ("gpu", "was built for another GPU ({}, here {})"),
    ("compute_capability", "was built for compute capability {}, here {}"),
    ("multiprocessors", "was built for a board with {} multiprocessors, here {}"),
    ("memory_gib", "was built for a board with {} GiB, here {}"),
    ("version", "was built by another version of TensorRT ({}, here {})"),
    ("precision", "has precision {}, wanted {}"),
    ("options", "was built with other options ({}, now {})"),
)


def _difference(key: EngineKey, found: Any) -> tuple[int, str] | None:
    """Return how the key in a report differs from ``key``; None if both are the same.

    ``found``: the key in the report. The result is the index in `_PARTS` of the first part that differs, and
    a text on the difference. The index is -1 if the report is damaged.
    """
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
