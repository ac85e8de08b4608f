"""The SROS2 policy allows the node what it really uses, nothing else, and nobody but it to answer."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from ros_helpers import ROOT

pytestmark = pytest.mark.ros

POLICY = ElementTree.parse(ROOT / "config" / "sros2_policy.xml").getroot()
# Of simulated time, of settings that are off, of other distributions, and of packages that are not installed
# everywhere.
NOT_ALWAYS = {
    "/clock",
    "/parameter_events",
    "/rosout",
    "annotations",
    "attitude",
    "click",
    "detections",
    "vehicle_heading",
    "~/get_type_description",
}


def allowed(enclave: str, kind: str, act: str) -> set[str]:
    """The names that a profile may use, as they are written."""
    blocks = POLICY.findall(f"./enclaves/enclave[@path='{enclave}']/profiles/profile/{kind}s[@{act}='ALLOW']")
    return {str(name.text) for block in blocks for name in block.findall(kind)}


def named(names: set[str], namespace: str) -> set[str]:
    """What the names mean for the node in this namespace."""
    own = f"/{namespace}/efftam_tracker/"
    return {
        name
        if name.startswith("/")
        else name.replace("~/", own)
        if name[0] == "~"
        else f"/{namespace}/{name}"
        for name in names
    }


@pytest.mark.parametrize(
    ("kind", "act", "ask"),
    [
        ("topic", "publish", "get_publisher_names_and_types_by_node"),
        ("topic", "subscribe", "get_subscriber_names_and_types_by_node"),
        ("service", "reply", "get_service_names_and_types_by_node"),
    ],
)
def test_the_node_is_allowed_what_it_uses_and_nothing_else(peer, kind: str, act: str, ask: str):
    listed = getattr(peer.node, ask)("efftam_tracker", f"/{peer.namespace}")
    used = {name for name, _ in listed}
    names = allowed("/efftam_tracker", kind, act)
    assert used <= named(names, peer.namespace)
    assert named(names - NOT_ALWAYS, peer.namespace) <= used


def test_selecting_and_stopping_are_two_rights():
    asks = {
        enclave: allowed(enclave, "service", "request")
        for enclave in ("/operator", "/manager", "/controller")
    }
    assert asks["/operator"] == {"/efftam_tracker/select_target", "/efftam_tracker/clear_target"}
    assert "/efftam_tracker/change_state" in asks["/manager"]
    assert not asks["/operator"] & asks["/manager"]
    assert asks["/controller"] == set()
    selects = {
        e
        for e in ("/camera", "/operator", "/manager", "/controller")
        if "select" in allowed(e, "topic", "publish")
    }
    assert selects == {"/operator"}
