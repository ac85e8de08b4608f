"""The package's files agree with each other: versions, messages, parameters, profiles, layouts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import xml.etree.ElementTree as ET
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import efftam_ros
from efftam_ros.core.config import TrackerConfig

ROOT = Path(__file__).parents[2]
MANIFEST = ET.parse(ROOT / "package.xml").getroot()


def test_name_and_version_are_the_same_everywhere():
    """`setup.py` reads the version from package.xml."""
    command = [sys.executable, "setup.py", "--name", "--version"]
    setup = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [MANIFEST.findtext("name"), MANIFEST.findtext("version")] == setup[-2:]
    assert [efftam_ros.__name__, efftam_ros.__version__] == setup[-2:]
    assert f"## [{efftam_ros.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_message_and_service_is_generated():
    cmake = (ROOT / "CMakeLists.txt").read_text()
    there = {f"{p.parent.name}/{p.name}" for p in [*ROOT.glob("msg/*.msg"), *ROOT.glob("srv/*.srv")]}
    assert set(re.findall(r'"((?:msg|srv)/\w+\.\w+)"', cmake)) == there
    for needed in {
        line.split("/")[0] for p in there for line in re.findall(r"^\w+/\w+", (ROOT / p).read_text(), re.M)
    }:
        assert needed == "efftam_ros" or f"<depend>{needed}</depend>" in (ROOT / "package.xml").read_text()


def test_every_message_field_has_a_comment():
    for file in [*ROOT.glob("msg/*.msg"), *ROOT.glob("srv/*.srv")]:
        for line in file.read_text().splitlines():
            code = line.split("#")[0].strip()
            if code and code != "---" and "=" not in code and file.stem != "SelectTarget":
                assert "#" in line, f"{file.name}: {line}"


def test_programs_are_executable_and_installed():
    cmake = (ROOT / "CMakeLists.txt").read_text()
    for name in ("efftam", "efftam_tracker", "efftam_gimbal", "efftam_mavlink", "efftam_position"):
        assert f"scripts/{name}" in cmake
        assert os.access(ROOT / "scripts" / name, os.X_OK)
        assert (ROOT / "scripts" / name).read_text().startswith("#!/usr/bin/env python3\n")


def test_the_program_of_a_workspace_gives_the_commands_of_the_wheel():
    shown = {
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for command in (
            [ROOT / "scripts" / "efftam", "--help"],
            [sys.executable, "-m", "efftam_ros", "--help"],
        )
    }
    assert len(shown) == 1
    assert "efftam_ros.tools.cli:main" in (ROOT / "setup.py").read_text()
    assert "scripts/efftam DESTINATION bin" in (ROOT / "CMakeLists.txt").read_text()


OF_THE_MESSAGES = {"rosidl_default_runtime", "builtin_interfaces", "geometry_msgs", "sensor_msgs", "std_msgs"}


@pytest.mark.parametrize("setting", [None, "0", "1"])
def test_a_consumer_of_the_messages_needs_only_message_packages(setting):
    """As rosdep and colcon read the manifest."""
    parsing = pytest.importorskip("catkin_pkg.package", reason="catkin_pkg is not installed")
    manifest = parsing.parse_package(str(ROOT / "package.xml"))
    manifest.evaluate_conditions({} if setting is None else {"EFFTAM_MESSAGES_ONLY": setting})
    needed = {depend.name for depend in manifest.exec_depends if depend.evaluated_condition}
    assert needed >= OF_THE_MESSAGES
    assert (needed == OF_THE_MESSAGES) is (setting == "1")
    assert ("rclpy" in needed) is (setting != "1")


@pytest.mark.slow
def test_the_messages_alone_are_built_and_installed(tmp_path):
    """By colcon, as in a consumer's workspace: minutes of compiling."""
    if shutil.which("colcon") is None:
        pytest.skip("colcon is not installed")
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    folders = [f"--{name}-base={tmp_path / name}" for name in ("build", "install")]
    command = ["colcon", f"--log-base={tmp_path / 'log'}", "build", f"--base-paths={ROOT}", *folders]
    options = ["--cmake-args", f"-DPython3_EXECUTABLE={sys.executable}"]
    environment = os.environ | {"EFFTAM_MESSAGES_ONLY": "1"}
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    share = tmp_path / "install" / "efftam_ros" / "share" / "efftam_ros"
    assert {path.name for path in share.glob("msg/*.msg")} == {path.name for path in ROOT.glob("msg/*.msg")}
    assert (share / "cmake" / "efftam_rosConfig.cmake").is_file()
    installed = {path.name for path in (tmp_path / "install" / "efftam_ros").rglob("*") if path.is_file()}
    assert not {"efftam_tracker", "cli.py", "tracker.launch.py", "jetson.yaml"} & installed


def test_the_licence_is_apache_2():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert MANIFEST.findtext("license") == "Apache-2.0"


def parameters_of(name: str) -> dict:
    return yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text())["/**"]["ros__parameters"]


def test_the_parameter_file_holds_every_parameter_with_its_default():
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    from efftam_ros.ros.tracker.parameters import NodeConfig, as_yaml

    assert (ROOT / "config" / "tracker.yaml").read_text() == as_yaml(), (
        "write it anew: python -m efftam_ros.ros.tracker.parameters > config/tracker.yaml"
    )
    declared = {f.name: f.default for t in (NodeConfig, TrackerConfig) for f in fields(t)}
    assert parameters_of("tracker") == declared


def test_the_flight_parameter_file_holds_every_parameter_with_its_default():
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    from efftam_flight.bridge_config import BridgeConfig
    from efftam_flight.ros.parameters import GimbalConfig, PositionNodeConfig, as_yaml

    text = (ROOT / "config" / "flight.yaml").read_text()
    assert text == as_yaml(), "write it anew: python -m efftam_flight.ros.parameters > config/flight.yaml"
    shipped = yaml.safe_load(text)
    for name, config_type in (
        ("efftam_gimbal", GimbalConfig),
        ("efftam_mavlink", BridgeConfig),
        ("efftam_position", PositionNodeConfig),
    ):
        defaults = {f.name: f.default for f in fields(config_type)}
        assert shipped[f"/**/{name}"]["ros__parameters"] == defaults


def test_the_page_of_parameters_is_what_the_code_declares():
    page = runpy.run_path(str(ROOT / "scripts" / "parameters_page"))["page"]()
    stored = (ROOT / "docs" / "parameters.md").read_text()
    assert stored == page, "write it anew: ./scripts/parameters_page > docs/parameters.md"
    assert "| `lost_after` | `1.0` | a number with a decimal point from 0 to 60 |" in stored


@pytest.mark.parametrize("name", ["desktop", "jetson"])
def test_platform_files_hold_allowed_values_of_known_parameters(name):
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    from efftam_ros.ros.common.parameters import changed
    from efftam_ros.ros.tracker.parameters import PARAMETERS, NodeConfig

    known = {f.name: type(f.default) for t in (NodeConfig, TrackerConfig) for f in fields(t)}
    for parameter, value in parameters_of(name).items():
        assert type(value) is known[parameter]
    assert PARAMETERS.refusals(parameters_of(name), configured=False) == []
    assert changed(NodeConfig(), parameters_of(name)).backend


def test_the_fast_dds_profile_has_room_for_images():
    name = {"d": "http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles"}
    root = ET.parse(ROOT / "config" / "fastdds_images.xml").getroot()
    transports = {
        t.findtext("d:type", "", name): t for t in root.iter(f"{{{name['d']}}}transport_descriptor")
    }
    assert int(transports["SHM"].findtext("d:segment_size", "0", name)) >= 4 * 1920 * 1080 * 3
    used = {t.text for t in root.iterfind(".//d:userTransports/d:transport_id", name)}
    assert used == {t.findtext("d:transport_id", "", name) for t in transports.values()}


def test_layouts_show_topics_that_exist():
    message_fields = {
        topic: set(re.findall(r"^[\w/\[\]]+ (\w+) ", (ROOT / "msg" / f"{message}.msg").read_text(), re.M))
        for topic, message in (("bbox", "BoundingBox"), ("velocity", "TargetVelocity"))
    }
    layout = json.loads((ROOT / "config" / "efftam.foxglove.json").read_text())
    paths = [path["value"] for panel in layout["configById"].values() for path in panel.get("paths", [])]
    assert paths
    for topic, field in (path.strip("/").split(".") for path in paths):
        assert field in message_fields[topic]

    def panels(node):
        return [node] if isinstance(node, str) else panels(node["first"]) + panels(node["second"])

    assert sorted(panels(layout["layout"])) == sorted(layout["configById"])
    rviz = yaml.safe_load((ROOT / "config" / "efftam.rviz").read_text())
    topics = [d["Topic"]["Value"] for d in rviz["Visualization Manager"]["Displays"]]
    assert topics == ["/overlay", "/mask"]


def setup_env(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([ROOT / "scripts" / "setup_env", *arguments], capture_output=True, text=True)


def test_setup_env_explains_itself_and_refuses_what_it_does_not_know():
    assert "--with-tests" in setup_env("--help").stdout
    refused = setup_env("--everything")
    assert refused.returncode == 2
    assert refused.stderr == "setup_env: unknown option --everything; try --help\n"


def test_header_folders_of_the_build_container_become_those_of_this_python(tmp_path):
    import numpy as np

    spec = importlib.util.spec_from_file_location("fix_exports", ROOT / "scripts" / "fix_exports.py")
    fix_exports = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fix_exports)
    file = tmp_path / "share" / "std_msgs" / "cmake" / "targets.cmake"
    file.parent.mkdir(parents=True)
    container = "/opt/python/cp311-cp311"
    file.write_text(
        f'"{container}/lib/python3.11/site-packages/numpy/_core/include;{container}/include/python3.11;/keep"'
    )
    assert fix_exports.repair(tmp_path) == 1
    assert file.read_text() == f'"{np.get_include()};{sysconfig.get_path("include")};/keep"'
    assert fix_exports.repair(tmp_path) == 0


@pytest.mark.parametrize("name", ["test", "demo", "setup_env", "figures"])
def test_scripts_explain_themselves_without_installing_anything(name, tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    shown = subprocess.run(
        [tmp_path / "scripts" / name, "--help"], capture_output=True, text=True, timeout=10
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"scripts/{name}" in shown.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["scripts"]


def test_tests_run_where_ros_brings_plug_ins_that_pytest_can_not_load(tmp_path):
    """launch_testing is written for an older pytest; here its place is taken by one that fails at once."""
    for module, entry in (
        ("launch_testing", "launch_testing"),
        ("launch_testing_ros_pytest_entrypoint", "launch_testing_ros_pytest_entrypoint"),
    ):
        (tmp_path / f"{module}.py").write_text("raise RuntimeError('of an older pytest')")
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pytest11]\n{entry} = {module}\n")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    }
    command = [sys.executable, "-m", "pytest", "--collect-only", "test/messages/test_bearing.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_pages_say_to_install_are_extras_of_the_checkout():
    setup = (ROOT / "setup.py").read_text()
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        text = page.read_text()
        assert "efftam_ros[" not in text  # the package is on no index
        for extra in re.findall(r"pip install '\.\[([\w,]+)\]'", text):
            assert all(f'        "{name}": ' in setup for name in extra.split(",")), page
