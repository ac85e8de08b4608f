"""Shared by all tests: bundles that take long to export are exported once per session."""

from __future__ import annotations

import fcntl
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

# No test asserts a time: on a loaded machine any example may take long.
settings.register_profile("efftam", deadline=None)
settings.load_profile("efftam")

sys.path.insert(0, str(Path(__file__).parent))
# Processes under test also find what is not installed: simulation, benchmarks.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parent.parent)]
)


# A process of Fast DDS has locked its shared memory so long after it made it, s.
SETTLED_S = 20.0

# Files that take half a minute or more: one that waits for processes, then one that computes, and so on, each
# kind by its length.
LONG_FILES = (
    "ros/test_flight_nodes.py",
    "export/test_engines.py",
    "ros/test_camera_node.py",
    "tools/test_demo_clip.py",
    "flight/test_whatever_happens.py",
    "operator/test_page_layout.py",
    "images/test_live_streams.py",
    "runtime/test_several_targets.py",
    "ros/test_flight_chain.py",
    "tools/test_outputs.py",
    "ros/test_operator_scene.py",
    "flight/test_rivals.py",
    "ros/test_clock_set.py",
    "model/test_golden_modules.py",
    "ros/test_restarts.py",
    "operator/test_page.py",
    "ros/test_node_process.py",
    "images/test_file_times.py",
    "ros/test_operator_node.py",
    "export/test_export_parity.py",
    "ros/test_operator_steering.py",
    "tools/test_replay.py",
    "ros/test_select_command.py",
    "operator/test_page_proposals.py",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The tests of training/, which is not installed, run where they are named: ./scripts/test training."""
    training = Path(__file__).parent / "training"
    if collection_path != training:
        return None
    named = [Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args]
    return None if any(path.resolve().is_relative_to(training) for path in named) else True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A count alone hides what was not looked at: one line per reason, which names the remedy."""
    reports = terminalreporter.stats.get("skipped", ())
    reasons = Counter(str(report.longrepr[-1]).removeprefix("Skipped: ") for report in reports)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """The garbage collector leaves out what is imported and collected, and starts less often: at Python's own
    threshold of 700 objects it takes a seventh of the time of tests that make many."""
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests, the long files come first, so that no process is left with one
    at the end, then the others by the number of their tests, as pytest-xdist orders them."""
    if not hasattr(config, "workerinput"):
        return
    folder = Path(__file__).parent
    ranks = {folder / name: rank for rank, name in enumerate(LONG_FILES)}
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -counts[item.path]))


@pytest.fixture(scope="module", autouse=True)
def shared_memory_of_killed_nodes() -> Iterator[None]:
    """Fast DDS leaves 35 MB of shared memory per killed process, which would fill memory in a test run.

    `fastdds shm clean` would also take what a process beside has just made and not yet locked.
    """
    yield
    if sys.platform != "linux":
        return
    for lock in Path("/dev/shm").glob("fastrtps_*_[es]l"):
        with suppress(OSError), lock.open("ab") as file:
            if time.time() - lock.stat().st_ctime > SETTLED_S:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                memory = lock.name[:-3]
                for name in (memory, f"sem.{memory}_mutex", lock.name):
                    lock.with_name(name).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """``made_once(name, make)``: a folder that is made by the first process of a test run that needs it, for
    all of them. ``make`` gets its path, at which it appears as a whole."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made_once"
    shared.mkdir(exist_ok=True)

    def made(name: str, make: Callable[[Path], object]) -> Path:
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (shared / name).exists():
                make(shared / name)
        return shared / name

    return made


@pytest.fixture(scope="session")
def golden_bundle(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """efficienttam_ti_512x512 with the artificial golden weights, as an exported bundle's folder.

    It is not compared with PyTorch: test/export does that on a small input, test/reference compares this one
    with the recorded runs.
    """
    torch = pytest.importorskip("torch", reason="export needs torch: scripts/setup_env --with-tests")
    pytest.importorskip("onnx", reason="export needs onnx: scripts/setup_env --with-tests")
    from golden.weights import weights

    from efftam_workshop.export.onnx import bundle
    from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS
    from efftam_workshop.model.efficienttam.network import EfficientTAM

    def export(folder: Path) -> None:
        network = EfficientTAM(CONFIGURATIONS["efficienttam_ti_512x512"]).eval()
        network.load_state_dict({n: torch.from_numpy(values) for n, values in weights("ti").items()})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bundle, "compare_with_network", lambda *_: [])
            bundle.export_bundle(network, folder)

    return made_once("efficienttam_ti_512x512", export)
