"""The package's structure: imports go one way, folders stay small, every module states its job."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "efftam_ros"
MAX_MODULES = 15
FACE = ("version", "packages", "package_files", "plugins")
"""Modules beside the folders that state facts of the installation and import nothing of ours."""
NOT_INSTALLED = ("training", "benchmarks", "simulation")
"""Packages of the checkout, which what is installed never imports."""
MAX_IMPORTED = {"CPU": 64, "GPU": 84}
"""Modules of the package in a process that flies with the default parameters; a smaller number may become the
limit."""
MAX_IN_A_FRAME = {"calls": 111, "files": 15, "changes": 40}
"""Calls into the package for a tracked frame on the CPU, files they are in, changes from file to file."""
MAX_OF_AN_IMAGE = {"calls": 167, "files": 26, "changes": 65}
"""The same in the node, from the image's callback to the published velocity: step and ROS side together."""

FLIGHT_SIDE = {"core", "images", "messages"}
ALL = FLIGHT_SIDE | {"runtime", "api", "tools", "ros"}
ADDED = ("efftam_flight", "efftam_operator")
"""Packages that build on efftam_ros; neither it nor one of them imports another of them."""
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "images": {"core"},
    "runtime": {"core", "images"},
    "messages": {"core", "images"},
    "api": {"core", "images", "runtime"},
    "ros": ALL - {"api", "tools"},
    "tools": ALL - {"ros"},
    **dict.fromkeys(ADDED, FLIGHT_SIDE),
    **{f"{name}.ros": {*FLIGHT_SIDE, "ros", name} for name in ADDED},
    "efftam_workshop": ALL,
    **{name: {*ALL, *ADDED, *(f"{one}.ros" for one in ADDED), "efftam_workshop"} for name in NOT_INSTALLED},
}
"""What modules of a folder of efftam_ros, or of another package, may import: folders, and other packages."""
SHOWN = ("benchmarks.peers", "simulation")
"""Packages of the checkout that offer the others what their ``__init__`` names, and nothing else."""
TORCH = ("efftam_workshop/model/", "efftam_workshop/export/onnx/", "benchmarks/", "training/")
RCLPY = (
    *(f"{name}/ros/" for name in ("efftam_ros", *ADDED)),
    "efftam_workshop/bench/latency.py",
    "benchmarks/",
    "simulation/",
)
NEVER_IN_CORE = {"cv2", "onnxruntime", "torch", "rclpy", "av"}

INSTALLED = ("efftam_ros", *ADDED, "efftam_workshop")
MODULES = [path for name in (*INSTALLED, *NOT_INSTALLED) for path in sorted((ROOT / name).rglob("*.py"))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def part_of(module: str) -> str:
    """What decides who may import a module: its folder or its name in efftam_ros, else its
    package, whose nodes count apart."""
    head, *rest = module.split(".")
    if head in ADDED and rest[:1] == ["ros"]:
        return f"{head}.ros"
    return rest[0] if head == "efftam_ros" and rest else head


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> list[str]:
    """Every module that a file imports, also inside functions and for types alone; names imported from a
    package count as its modules."""
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def heads(path: Path) -> set[str]:
    """The packages that a file imports."""
    return {module.split(".")[0] for module in imports(path)}


BY_NAME = {dotted(path): path for path in MODULES}


def own(module: str) -> str:
    """The module of the repository that an imported name is, or is in; "" for other packages'."""
    while module and module not in BY_NAME:
        module = module.rpartition(".")[0]
    return module


def may_import(importer: str, module: str) -> bool:
    part, other = part_of(importer), part_of(module)
    if other == "efftam_ros":  # the package itself, for its version and the API
        return part not in ("core", "images", "runtime", "messages", *ADDED)
    return other in {part, *FACE, *ALLOWED.get(part, set())} or (part in NOT_INSTALLED and module in SHOWN)


def arrows_up() -> list[str]:
    """Imports that the rules forbid."""
    return [
        f"{importer} imports {module}"
        for importer, path in BY_NAME.items()
        if importer not in ("efftam_ros", "efftam_ros.__main__")
        for module in map(own, imports(path))
        if module and not may_import(importer, module)
    ]


def import_graph() -> dict[str, set[str]]:
    """The modules of the repository that each one imports."""
    return {name: {own(m) for m in imports(path)} - {"", name} for name, path in BY_NAME.items()}


def test_imports_go_one_way():
    assert len(BY_NAME) > 200
    assert arrows_up() == []


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or by way of others."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for other in graph.get(waiting.pop(), ()):
                if other not in found:
                    found.add(other)
                    waiting.append(other)
        return found

    reach = {name: reached(name) for name in graph}
    groups = {
        tuple(sorted(n for n in reach[name] if name in reach[n])) for name in graph if name in reach[name]
    }
    return [list(group) for group in sorted(groups)]


def test_no_modules_import_each_other():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles(import_graph()) == []


def test_every_folder_of_the_package_has_its_import_rule():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {*folders, *INSTALLED} - {"efftam_ros"} <= set(ALLOWED)


def test_flight_and_page_build_on_the_tracker_and_never_on_each_other():
    assert may_import("efftam_flight.law", "efftam_ros.core.geometry")
    assert may_import("efftam_operator.ros.node", "efftam_operator.server")
    assert not may_import("efftam_flight.law", "efftam_ros.ros.common.nodes")
    assert not may_import("efftam_flight.ros.mavlink", "efftam_operator.wire")
    assert not may_import("efftam_operator.server", "efftam_flight.values")
    assert not may_import("efftam_ros.tools.track", "efftam_operator.drawn")


def test_no_module_changes_the_search_path():
    """By it a module would import what the rules forbid."""
    assert [name_of(path) for path in MODULES if "sys.path." in path.read_text()] == []


def test_rclpy_is_imported_in_ros_and_measurements_alone():
    importing = [path for path in MODULES if "rclpy" in heads(path)]
    assert importing
    assert [name_of(path) for path in importing if not name_of(path).startswith(RCLPY)] == []


def test_torch_is_imported_where_networks_are_written_or_exported():
    importing = [name_of(path) for path in MODULES if "torch" in heads(path)]
    assert importing
    assert [name for name in importing if not name.startswith(TORCH)] == []


def test_core_computes_with_numpy_alone():
    for path in (PACKAGE / "core").rglob("*.py"):
        assert not heads(path) & NEVER_IN_CORE, path


def test_no_folder_of_the_package_is_crowded():
    files = [path for name in INSTALLED for path in (ROOT / name).rglob("*.py")]
    counts = Counter(path.parent for path in files if path.name != "__init__.py")
    assert {str(folder): count for folder, count in counts.items() if count > MAX_MODULES} == {}


def test_no_class_name_stands_twice():
    files = [path for name in INSTALLED for path in (ROOT / name).rglob("*.py")]
    nodes = [node for path in files for node in ast.walk(parsed(path))]
    counts = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert {name: count for name, count in counts.items() if count > 1} == {}


def test_no_prefix_of_file_names_does_a_folders_work():
    for folder in {path.parent for path in PACKAGE.rglob("*.py")}:
        prefixes = Counter(path.stem.split("_")[0] for path in folder.glob("*_*.py"))
        assert {prefix: n for prefix, n in prefixes.items() if n > 3} == {}, folder


@pytest.mark.parametrize("module", ["tools.cli", "runtime.opening", "core.tracker"])
def test_starting_a_command_imports_nothing_heavy(module):
    heavy = ("torch", "cv2", "av", "onnxruntime", "rclpy")
    code = f"import sys, efftam_ros.{module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_a_trackers_node_loads_nothing_that_is_off_by_default():
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    pytest.importorskip("efftam_ros.msg", reason="the messages are not built")
    off = (
        "ros.common.large_images",
        "images.overlay",
    )
    loaded = f"[m for m in {off} if 'efftam_ros.' + m in sys.modules]"
    code = f"import sys, efftam_ros.ros.tracker.node; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def figures() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "figures"))


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_what_flies_stays_small(device):
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    pytest.importorskip("efftam_ros.msg", reason="the messages are not built")
    script = figures()
    modules = script["CPU"] if device == "CPU" else (*script["GPU"], *script["ENGINES"])
    count = script["imported_by"](*modules)
    assert count is not None
    assert count <= MAX_IMPORTED[device]


def test_the_constants_of_the_policy_stand_in_one_table():
    for path in (ROOT / "efftam_ros/core/policies").glob("*.py"):
        if path.name == "constants.py":
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Assign) and isinstance(
                node.value, ast.Constant | ast.UnaryOp | ast.Tuple
            ):
                names = [
                    name.id
                    for target in node.targets
                    for name in ast.walk(target)
                    if isinstance(name, ast.Name)
                ]
                assert not any(name.isupper() for name in names), f"{path.name}: move {names} to constants.py"


def test_the_path_of_a_frame_stays_short():
    printed = figures()["calls_of_a_frame"]("auto")
    assert printed is not None
    found = dict(zip(MAX_IN_A_FRAME, map(int, printed.split(" / ")), strict=True))
    assert {name: n for name, n in found.items() if n > MAX_IN_A_FRAME[name]} == {}


def test_the_path_of_an_image_through_the_node_stays_short():
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    pytest.importorskip("efftam_ros.msg", reason="the messages are not built")
    printed = figures()["calls_of_an_image"]("auto")
    assert printed is not None
    found = dict(zip(MAX_OF_AN_IMAGE, map(int, printed.split(" / ")), strict=True))
    assert {name: n for name, n in found.items() if n > MAX_OF_AN_IMAGE[name]} == {}


FLIGHT = """
import sys
from itertools import islice
import numpy as np
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.types import Frame, Image
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_workshop.bench.frames import drawn_frames

targets = open_targets(open_pipeline(PipelineConfig(threads=1)), TrackerConfig(lost_after=0.2))
frames = drawn_frames((320, 192))
first = next(frames)
before = set(sys.modules)
states = set()
for number, (frame, prompt) in enumerate((first, *islice(frames, 40))):
    if 10 <= number < 25:  # the target is gone, then back
        frame = Frame(Image.from_array(np.full((192, 320, 3), 90, np.uint8)), frame.stamp_ns)
    ((_, track, tracker, _),) = targets.step(frame, {0: prompt} if prompt else {})
    states.add(track.state.name)
    tracker.mask()
    targets.remember()
assert {"TRACKING", "COASTING", "LOST"} <= states, states
print(sorted(name for name in set(sys.modules) - before if name.startswith("efftam_ros")))
"""


def test_no_module_is_loaded_once_frames_come():
    """The first use in flight would wait for it."""
    command = [sys.executable, "-c", FLIGHT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("module", ["runtime.device.opening", "runtime.device.pipeline"])
def test_a_gpu_loads_what_compares_it_with_the_cpu_only_to_compare(module):
    loaded = "[m for m in sys.modules if m == 'onnxruntime' or m == 'efftam_ros.runtime.verify']"
    code = f"import sys, efftam_ros.{module}; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).is_file()]


def test_every_module_states_its_job_in_its_first_line():
    first_lines = {
        name_of(path): (ast.get_docstring(parsed(path)) or "").partition("\n")[0] for path in MODULES
    }
    assert [name for name, line in first_lines.items() if not line.strip()] == []


def test_no_large_file_but_networks():
    """The bundle that ships, and weights to train on from."""
    for path in tracked_files():
        if not {"models", "open_data"} & set(path.parts):
            assert path.stat().st_size < 3_000_000, path
