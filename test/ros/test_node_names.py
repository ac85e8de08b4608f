"""Private names of our nodes are not those of rclpy's, which would go unserved without an error."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from rclpy.lifecycle import LifecycleNode
from ros_helpers import ROOT, new_namespace

NODES = [
    *sorted(ROOT.glob("efftam_*/ros/**/node.py")),
    ROOT / "efftam_ros" / "ros" / "common" / "nodes.py",
    ROOT / "efftam_ros" / "ros" / "camera.py",
    ROOT / "efftam_flight" / "ros" / "mavlink.py",
]


def private_names(path: Path) -> set[str]:
    """Private methods of the module's nodes, and private attributes that are set on ``self``."""
    classes = [one for one in ast.parse(path.read_text()).body if isinstance(one, ast.ClassDef)]
    classes = [one for one in classes if any("Node" in ast.unparse(base) for base in one.bases)]
    methods = {item.name for one in classes for item in one.body if isinstance(item, ast.FunctionDef)}
    attributes = {
        node.attr
        for one in classes
        for node in ast.walk(one)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return {name for name in methods | attributes if name.startswith("_") and not name.endswith("__")}


@pytest.mark.parametrize("path", NODES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_private_name_of_a_node_is_one_of_rclpys(ros, path):
    node = LifecycleNode("names", namespace=new_namespace())
    taken = set(dir(node))
    node.destroy_node()
    assert "_services" in taken
    assert private_names(path)
    assert private_names(path) & taken == set()
