"""The package's files agree with each other: versions, messages, parameters, profiles, layouts."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
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


def setup_arguments() -> dict:
    (call,) = [
        node
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setup"
    ]
    return {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}


def test_name_and_version_are_the_same_everywhere():
    setup = setup_arguments()
    assert MANIFEST.findtext("name") == setup["name"] == efftam_ros.__name__
    assert MANIFEST.findtext("version") == setup["version"] == efftam_ros.__version__
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
    for name in ("efftam_tracker", "efftam_gimbal", "efftam_mavlink", "efftam_bag_player"):
        assert f"scripts/{name}" in cmake
        assert os.access(ROOT / "scripts" / name, os.X_OK)
        assert (ROOT / "scripts" / name).read_text().startswith("#!/usr/bin/env python3\n")


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
    from efftam_ros.ros.flight_parameters import as_yaml
    from efftam_ros.ros.gimbal.parameters import GimbalParameters
    from efftam_ros.ros.mavlink.parameters import BridgeParameters

    text = (ROOT / "config" / "flight.yaml").read_text()
    assert text == as_yaml(), "write it anew: python -m efftam_ros.ros.flight_parameters > config/flight.yaml"
    shipped = yaml.safe_load(text)
    for name, config_type in (("efftam_gimbal", GimbalParameters), ("efftam_mavlink", BridgeParameters)):
        defaults = {f.name: f.default for f in fields(config_type)}
        assert shipped[f"/**/{name}"]["ros__parameters"] == defaults


def test_the_gimbals_defaults_are_the_controllers():
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    from efftam_ros.flight.control_config import ControlConfig
    from efftam_ros.ros.gimbal.parameters import GimbalParameters

    assert GimbalParameters().control() == ControlConfig()


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
        topic: set(re.findall(r"^[\w/\[\]]+ (\w+) ", (ROOT / "msg" / f"{name}.msg").read_text(), re.M))
        for topic, name in (("bbox", "BoundingBox"), ("velocity", "TargetVelocity"))
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
