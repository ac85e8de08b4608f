"""What maintainers go by: pages that name existing files, sound workflows and hooks, declared imports."""

from __future__ import annotations

import ast
import csv
import re
import runpy
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
MANIFEST = ET.parse(ROOT / "package.xml").getroot()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "QUALITY_DECLARATION.md",
    ROOT / "SECURITY.md",
    ROOT / "docs" / "architecture.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
FOLDERS = "|".join(
    [
        "efftam_ros",
        "efftam_workshop",
        "test",
        "docs",
        "scripts",
        "config",
        "msg",
        "srv",
        "launch",
        "benchmarks",
        "simulation",
        "training",
    ]
    + ["\\.github"]
)
PATHS = rf"(?:{FOLDERS})/[\w./*-]*|[\w-]+\.(?:toml|xml|txt|md)"


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_file_that_a_page_names_exists(page):
    text = page.read_text()
    for span in re.findall(r"`([^`\n]+)`", text):
        for word in span.split():
            if re.fullmatch(PATHS, word):
                assert list(ROOT.glob(word.rstrip("/"))), word
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in link:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_name_in_code_that_a_page_pairs_with_a_file_is_in_it(page):
    """The file in brackets behind the name, or the name behind the file and a colon."""
    pairs = [(a, b) for a, b in re.findall(r"`([A-Za-z_]+)`\s+\(`([\w/]+\.py)`\)", page.read_text())]
    pairs += [(b, a) for a, b in re.findall(r"`([\w/]+\.py)`: `([A-Za-z_]+)`", page.read_text())]
    for name, file in pairs:
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text()), f"{name} is not in {file}"


def steps() -> list[tuple[str, str]]:
    found = []
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            found += [(path.name, step["run"]) for step in job["steps"] if "run" in step]
    return found


def test_workflows_follow_their_schema():
    pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_take_only_the_rights_they_need():
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/checkout"):
                    assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize(("workflow", "script"), steps())
def test_every_step_is_bash_that_runs_what_there_is(workflow, script):
    plain = re.sub(r"\$\{\{.*?\}\}", "expression", script)
    done = subprocess.run(["bash", "-n"], input=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in re.findall(r"(?:^|\s)(?:\./)?(scripts/\w+)", script):
        assert (ROOT / name).stat().st_mode & 0o111, name


def test_the_distributions_of_the_workflow_are_those_that_are_asked_for():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert jobs["ros"]["strategy"]["matrix"]["distro"] == ["humble", "jazzy", "kilted", "lyrical", "rolling"]
    assert jobs["ros"]["container"] == "ros:${{ matrix.distro }}"


def test_hooks_are_tools_of_the_environment():
    hooks = [
        h for r in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for h in r["hooks"]
    ]
    wanted = (ROOT / "scripts" / "requirements-test.txt").read_text()
    for hook in hooks:
        assert hook["language"] == "system"
        tool = hook["entry"].split()[0]
        assert tool == "python3" or re.search(rf"^{tool}\b", wanted, re.M), tool


def test_every_ros_package_that_is_imported_is_declared():
    declared = {element.text for element in MANIFEST if element.tag.endswith("depend")}
    known = {
        "ament_index_python", "builtin_interfaces", "diagnostic_msgs", "geometry_msgs", "launch",
        "launch_ros", "lifecycle_msgs", "rcl_interfaces", "rclpy", "rosgraph_msgs", "sensor_msgs", "std_msgs",
        "std_srvs",
    }  # fmt: skip
    used = set()
    for path in [*ROOT.glob("efftam_*/**/*.py"), *(ROOT / "launch").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            used |= {module.split(".")[0] for module in modules}
    assert used & known <= declared


def test_the_maintainers_address_is_no_example():
    (maintainer,) = MANIFEST.findall("maintainer")
    assert re.fullmatch(r"[\w.-]+@[\w.-]+\.\w+", maintainer.get("email"))
    assert "example" not in maintainer.get("email")


def test_every_package_that_flies_has_a_wheel_for_arm64():
    """As `scripts/arm64` saw it."""
    script = runpy.run_path(str(ROOT / "scripts" / "arm64"))
    with script["STORED"].open() as file:
        rows = list(csv.reader(file))[1:]
    named = [(extra, requirement.name) for extra, requirement in script["requirements"]()]
    assert [tuple(row[:2]) for row in rows] == named
    assert not [row for row in rows if row[0] in script["FLIES"] and "-" in row[2:]]
