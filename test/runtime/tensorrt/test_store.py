"""Engines on disk: whole or not at all, the right one or none, built once."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.tensorrt.store import EngineKey, EngineMissing, EngineStore

ROOT = Path(__file__).parents[3]
NAME = "compact_192"
KEY = EngineKey(
    module="mask_decoder",
    onnx_sha256="ab" * 32,
    version="10.3.0",
    gpu="Orin (nvgpu)",
    compute_capability="8.7",
    multiprocessors=16,
    memory_gib=62,
    precision="fp32",
    options={"tf32": False, "profiles": ({"name": "points", "usual": (1, 2)},)},
)
OTHERS = {
    "module": ("memory_encoder", None),
    "onnx_sha256": ("cd" * 32, "was built from another graph (abababababab, now cdcdcdcdcdcd)"),
    "version": ("11.4.1", "was built by another version of TensorRT (10.3.0, here 11.4.1)"),
    "gpu": ("AGX Thor", "was built for another GPU (Orin (nvgpu), here AGX Thor)"),
    "compute_capability": ("11.0", "was built for compute capability 8.7, here 11.0"),
    "multiprocessors": (8, "was built for a board with 16 multiprocessors, here 8"),
    "memory_gib": (16, "was built for a board with 62 GiB, here 16"),
    "precision": ("fp16", None),
    "options": ({"tf32": True}, "was built with other options ({'profiles': [{'name': 'points'"),
}
"""Another value of each part, and what is said of an engine that differs in it alone."""

PARTS = {field.name: getattr(KEY, field.name) for field in fields(KEY)}
CHILD = f"""
    import sys
    from pathlib import Path
    from efftam_ros.runtime.tensorrt.store import EngineKey, EngineStore
    store, key = EngineStore(Path(sys.argv[1])), EngineKey(**{PARTS!r})
    NAME = {NAME!r}
"""


def child(code: str, *args: Any, **options: Any) -> subprocess.Popen[str]:
    """A process that runs ``code`` after `CHILD`; its first argument is the store's folder."""
    source = textwrap.dedent(CHILD) + textwrap.dedent(code)
    command = [sys.executable, "-c", source, *map(str, args)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture
def store(tmp_path: Path) -> EngineStore:
    return EngineStore(tmp_path / "engines")


def refusal(store: EngineStore, key: EngineKey = KEY) -> str:
    found = store.load(NAME, key)
    assert isinstance(found, EngineMissing), f"{len(found)} bytes were loaded"
    assert "\n" not in found.reason
    return found.reason


# What is kept is found again.


def test_an_engine_comes_back_byte_for_byte_with_its_report(store: EngineStore) -> None:
    plan = np.random.default_rng(0).bytes(10_000)
    store.put(NAME, KEY, plan, {"worst": 0.25, "passed": True})
    assert store.load(NAME, KEY) == plan
    assert EngineStore(store.folder).report(NAME, KEY) == {"worst": 0.25, "passed": True}


def test_files_are_named_for_people_and_by_key(store: EngineStore) -> None:
    store.put(NAME, KEY, b"plan", {})
    stem = f"compact_192-mask_decoder-fp32-{KEY.hex[:16]}"
    written = {path.name for path in store.folder.iterdir()}
    assert written == {f"{stem}.{kind}" for kind in ("engine", "json", "lock")}
    assert json.loads((store.folder / f"{stem}.json").read_text())["key"]["gpu"] == "Orin (nvgpu)"
    longest = "efficienttam_ti_512x512-memory_attention_fixed-fp32-" + KEY.hex[:16] + ".12345678.tmp"
    assert len(longest) <= 143, "some encrypted file systems allow no more"


def test_the_key_is_the_same_in_every_process_and_whatever_the_order_of_options() -> None:
    process = child("print(key.hex)", "unused")
    assert process.communicate()[0].strip() == KEY.hex
    turned = replace(KEY, options=dict(reversed(list(KEY.options.items()))))
    assert turned.hex == KEY.hex


# What does not fit is refused, and says why.


def test_an_empty_store_says_what_it_lacks_and_where(store: EngineStore) -> None:
    assert refusal(store) == f"there is no engine for compact_192 mask_decoder fp32 in {store.folder}"
    assert store.report(NAME, KEY) is None


@pytest.mark.parametrize("part", OTHERS)
def test_an_engine_that_differs_in_one_part_is_not_loaded_and_the_part_is_named(
    store: EngineStore, part: str
) -> None:
    store.put(NAME, KEY, b"plan", {})
    other, said = OTHERS[part]
    reason = refusal(store, replace(KEY, **{part: other}))
    assert "there is no engine for" in reason
    if said is None:  # another module or precision is another engine, not a stale one
        assert "one there" not in reason
    else:
        assert said in reason


def test_of_several_engines_that_do_not_fit_the_nearest_is_named(store: EngineStore) -> None:
    for part in ("onnx_sha256", "version", "gpu"):
        store.put(NAME, replace(KEY, **{part: OTHERS[part][0]}), b"plan", {})
    assert "was built by another version of TensorRT (11.4.1, here 10.3.0)" in refusal(store)


def test_half_of_an_engine_is_refused(store: EngineStore) -> None:
    store.put(NAME, KEY, b"plan", {})
    path = store.path(NAME, KEY)
    report = path.with_suffix(".json").read_text()
    path.with_suffix(".json").unlink()
    assert "there is no engine" in refusal(store)
    path.with_suffix(".json").write_text(report)
    path.unlink()
    assert "only its report" in refusal(store)


def test_an_engine_cut_short_or_with_one_wrong_bit_is_refused(store: EngineStore) -> None:
    plan = bytes(range(64))
    store.put(NAME, KEY, plan, {})
    for at in (0, 31, 63):
        store.path(NAME, KEY).write_bytes(plan[:at])
        assert f"has {at} bytes instead of 64" in refusal(store)
        store.path(NAME, KEY).write_bytes(plan[:at] + bytes([plan[at] ^ 4]) + plan[at + 1 :])
        assert "is damaged: its sha256" in refusal(store)


WRONG_TYPE = json.dumps({"key": KEY.parts | {"onnx_sha256": 7}, "report": {}})


@pytest.mark.parametrize(
    "content",
    [
        *("[]", "null", '{"key": 3, "report": {}}', '{"key": {}, "report": {}}', "[" * 100_000),
        *(WRONG_TYPE, WRONG_TYPE[:-9], json.dumps({"key": KEY.parts}), "\udcff"),
    ],
)
def test_a_report_of_another_kind_is_refused(store: EngineStore, content: str) -> None:
    store.put(NAME, KEY, b"plan", {})
    store.path(NAME, KEY).with_suffix(".json").write_text(content, errors="surrogateescape")
    assert "has a damaged report" in refusal(store)
    assert "one there" not in refusal(store, replace(KEY, version="11.4.1")), "nobody knows what it is"


def test_engines_swapped_between_modules_are_refused(store: EngineStore) -> None:
    other = replace(KEY, module="memory_encoder", onnx_sha256="cd" * 32)
    store.put(NAME, KEY, b"decoder", {})
    store.put(NAME, other, b"encoder", {})
    shutil.copy(store.path(NAME, other), store.path(NAME, KEY))
    assert "damaged" in refusal(store)
    shutil.copy(store.path(NAME, other).with_suffix(".json"), store.path(NAME, KEY).with_suffix(".json"))
    assert "is of module memory_encoder, not mask_decoder" in refusal(store)


# Writers that die.


CALLS = 2 * 5


@pytest.mark.parametrize("before", [False, True], ids=["first engine", "over an older one"])
@pytest.mark.parametrize("call", range(1, CALLS + 2))
def test_a_writer_killed_before_any_of_its_system_calls_leaves_a_whole_engine_or_none(
    store: EngineStore, before: bool, call: int
) -> None:
    """The calls: make, write, sync, rename and sync the folder, for the engine and for its report."""
    if before:
        store.put(NAME, KEY, b"old" * 1000, {})
    process = child(
        """
        import os, signal, tempfile
        left = int(sys.argv[2])
        def dying(function):
            def call(*args, **kwargs):
                global left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **kwargs)
            return call
        tempfile.mkstemp = dying(tempfile.mkstemp)
        os.fchmod, os.fsync, os.replace = dying(os.fchmod), dying(os.fsync), dying(os.replace)
        store.put(NAME, key, b"new" * 2000, {})
        print("done")
        """,
        store.folder,
        call,
    )
    done = process.communicate()[0] == "done\n"
    assert done == (call == CALLS + 1), (
        "two files, each made, opened to all, synced, renamed, the folder synced"
    )
    assert process.returncode == (0 if done else -signal.SIGKILL)
    found = store.load(NAME, KEY)
    allowed = [b"new" * 2000] if done else [b"new" * 2000, b"old" * 1000]
    assert found in allowed or (not done and isinstance(found, EngineMissing))
    store.put(NAME, KEY, b"next", {})
    assert store.load(NAME, KEY) == b"next"
    assert not list(store.folder.glob("*.tmp")), "what the killed writer left is cleaned away"


# Several at once.

BUILDER = """
    import os, time
    def build():
        with open(Path(sys.argv[1]) / "builds", "a") as file:
            file.write("x")
        print("building", flush=True)
        sys.stdin.readline()
        return {key.module: (os.urandom(10_000), {"by": os.getpid()})}
    plan = store.load_or_build(NAME, [key], build, lambda text: print(text, flush=True))[key.module]
    import hashlib
    print(hashlib.sha256(plan).hexdigest(), flush=True)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_of_two_processes_one_builds_and_the_other_waits_and_loads_or_builds_if_the_first_was_killed(
    store: EngineStore, killed: bool
) -> None:
    first = child(BUILDER, store.folder, stdin=subprocess.PIPE)
    assert first.stdout is not None
    assert first.stdout.readline().startswith("building: there is no engine for")
    assert first.stdout.readline() == "building\n"
    second = child(BUILDER, store.folder, stdin=subprocess.PIPE)
    assert second.stdout is not None
    assert second.stdout.readline().startswith(
        "waiting: another process is building compact_192-mask_decoder"
    )
    if killed:
        first.kill()
    digest = first.communicate("" if killed else "\n", timeout=30)[0].strip()
    *said, last = second.communicate("\n", timeout=30)[0].splitlines()
    assert (said[:1] != []) == killed
    assert not killed or said[0].startswith("building: there is no engine")
    assert killed or last == digest
    assert (store.folder / "builds").read_text() == ("xx" if killed else "x")
    found = store.load(NAME, KEY)
    assert isinstance(found, bytes)
    assert hashlib.sha256(found).hexdigest() == last


def test_many_threads_build_once(store: EngineStore) -> None:
    builds: list[int] = []
    got: list[bytes] = []

    def build() -> dict[str, tuple[bytes, dict[str, Any]]]:
        builds.append(1)
        time.sleep(0.05)
        return {KEY.module: (b"the engine", {})}

    def load_or_build() -> None:
        got.append(store.load_or_build(NAME, [KEY], build)[KEY.module])

    threads = [threading.Thread(target=load_or_build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(builds), got) == (1, [b"the engine"] * 8)


def test_engines_of_other_keys_are_not_waited_for_and_what_is_being_written_of_them_stays(
    store: EngineStore,
) -> None:
    other = replace(KEY, module="memory_encoder")
    with store.lock(NAME, KEY):
        ours, theirs = (store.path(NAME, key).with_suffix(".x.tmp") for key in (KEY, other))
        for path in (ours, theirs):
            path.write_text("")
        thread = threading.Thread(target=store.put, args=(NAME, other, b"x", {}))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        assert (ours.exists(), theirs.exists()) == (True, False)


@pytest.mark.parametrize("error", [RuntimeError("gate"), KeyboardInterrupt()])
def test_a_build_that_fails_keeps_nothing_and_lets_the_next_one_try(
    store: EngineStore, error: BaseException
) -> None:
    def fail() -> dict[str, tuple[bytes, dict[str, Any]]]:
        raise error

    with pytest.raises(type(error)):
        store.load_or_build(NAME, [KEY], fail)
    assert "there is no engine" in refusal(store)
    kept = {KEY.module: b"plan"}
    assert store.load_or_build(NAME, [KEY], lambda: {KEY.module: (b"plan", {})}) == kept
    assert store.load_or_build(NAME, [KEY], fail) == kept
    with pytest.raises(type(error)):
        store.load_or_build(NAME, [KEY], fail, force=True)
    assert store.load_or_build(NAME, [KEY], fail) == kept


def test_a_set_that_lacks_one_engine_is_built_as_a_whole(store: EngineStore) -> None:
    keys = [KEY, replace(KEY, module="memory_encoder")]
    store.put(NAME, KEY, b"old", {})
    new = {key.module: (f"new {key.module}".encode(), {}) for key in keys}
    plans = store.load_or_build(NAME, keys, lambda: new)
    assert plans == {module: plan for module, (plan, _) in new.items()}
    assert {key.module: store.load(NAME, key) for key in keys} == plans


# Folders that can't be written.


def test_a_file_in_place_of_the_folder_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = EngineStore(tmp_path / "file" / "engines")

    def never() -> dict[str, tuple[bytes, dict[str, Any]]]:
        raise AssertionError("built for nothing")

    with pytest.raises(InputError, match=r"engine store .*/file/engines: .* \(Not a directory\); free space"):
        store.load_or_build(NAME, [KEY], never)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """That any user can reach."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


DROP = """
    import os
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    from efftam_ros.core.errors import InputError
"""


def test_a_folder_that_may_not_be_written_is_refused_but_engines_in_it_load(open_folder: Path) -> None:
    store = EngineStore(open_folder / "engines")
    store.put(NAME, KEY, b"plan", {})
    store.folder.chmod(0o555)
    code = (
        DROP
        + """
    print(store.load_or_build(NAME, [key], None)[key.module])
    for path in ("other", NAME):
        try:
            store.put(path, key, b"new", {})
        except InputError as error:
            print(error)
    """
    )
    said = child(code, store.folder).communicate()[0].splitlines()
    assert said[0] == "b'plan'"
    assert len(said) == 3
    assert all("can't be read or written (Permission denied); free space" in line for line in said[1:])
    assert store.load(NAME, KEY) == b"plan"


def test_a_full_disk_is_refused_in_one_line_and_leaves_no_half_engine(store: EngineStore) -> None:
    store.put(NAME, KEY, b"old", {})
    process = child(
        """
        import resource, signal
        from efftam_ros.core.errors import InputError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            store.put(NAME, key, b"x" * 100_000, {})
        except InputError as error:
            print(error)
        """,
        store.folder,
    )
    said = process.communicate()[0]
    assert said.count("\n") == 1
    assert "can't be read or written (File too large); free space there" in said
    assert store.load(NAME, KEY) == b"old"
    assert not list(store.folder.glob("*.tmp"))


@pytest.mark.parametrize("part", ["folder", "engine"])
def test_what_every_user_may_write_is_neither_loaded_nor_written(store: EngineStore, part: str) -> None:
    store.put(NAME, KEY, b"plan", {})
    open_to_all = store.folder if part == "folder" else store.path(NAME, KEY)
    open_to_all.chmod(open_to_all.stat().st_mode | 0o002)
    with pytest.raises(InputError, match=r"every user may write .*chmod o-w"):
        store.load(NAME, KEY)
    if part == "folder":
        with pytest.raises(InputError, match=r"chmod o-w"):
            store.put(NAME, KEY, b"plan", {})
    open_to_all.chmod(open_to_all.stat().st_mode & ~0o002)
    assert store.load(NAME, KEY) == b"plan"
