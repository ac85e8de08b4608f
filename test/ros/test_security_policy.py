"""The SROS2 policy allows each node what it really uses, nothing else, and nobody but it to answer."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from importlib import import_module

import pytest
from level_node import Spinning
from ros_helpers import ROOT
from test_camera_node import CALIBRATION

from efftam_flight.ros.main import PROGRAMS as FLIGHT_PROGRAMS
from efftam_ros.ros.main import PROGRAMS

POLICY = ElementTree.parse(ROOT / "config" / "sros2_policy.xml").getroot()
# Of simulated time, of settings that are off, of other distributions, and of packages that are not installed
# everywhere.
NOT_ALWAYS = {
    "/clock",
    "/parameter_events",
    "/rosout",
    "click",
    "detections",
    "image/compressed",
    "mavros_gimbal_attitude",
    "position_geo",
    "camera_pose",
    "/tf",
    "/tf_static",
    "vehicle_heading",
    "~/get_type_description",
}
ASKS = {
    ("topic", "publish"): "get_publisher_names_and_types_by_node",
    ("topic", "subscribe"): "get_subscriber_names_and_types_by_node",
    ("service", "reply"): "get_service_names_and_types_by_node",
    ("service", "request"): "get_client_names_and_types_by_node",
}


def allowed(enclave: str, kind: str, act: str) -> set[str]:
    """The names that a profile may use, as they are written."""
    blocks = POLICY.findall(f"./enclaves/enclave[@path='{enclave}']/profiles/profile/{kind}s[@{act}='ALLOW']")
    return {str(name.text) for block in blocks for name in block.findall(kind)}


def named(names: set[str], namespace: str, node: str) -> set[str]:
    """What the names mean for the node in this namespace."""
    own = f"/{namespace}/{node}/"
    return {
        name
        if name.startswith("/")
        else name.replace("~/", own)
        if name[0] == "~"
        else f"/{namespace}/{name}"
        for name in names
    }


def check(peer, node: str) -> None:
    """Compare the policy with what the network of nodes tells of a running node."""
    full_name = (node, f"/{peer.namespace}")
    peer.wait(lambda: full_name in peer.node.get_node_names_and_namespaces(), f"the node {node}")
    for (kind, act), ask in ASKS.items():
        names = allowed(f"/{node}", kind, act)
        always = named(names - NOT_ALWAYS, peer.namespace, node)

        def used(ask: str = ask) -> set[str]:
            return {name for name, _ in getattr(peer.node, ask)(node, f"/{peer.namespace}")}

        peer.wait(lambda used=used, always=always: always <= used(), f"all that {node} may {act}: {always}")
        assert used() <= named(names, peer.namespace, node), (kind, act)


def test_the_tracker_is_allowed_what_it_uses_and_nothing_else(peer):
    check(peer, "efftam_tracker")


def test_the_pages_node_is_allowed_what_it_uses_and_nothing_else(peer):
    pytest.importorskip("aiohttp", reason="the operator's page needs aiohttp")
    from operator_page import Operator, Page

    operator = Operator(peer.namespace)
    page = Page(operator.url)  # images are subscribed to while somebody watches
    try:
        check(peer, "efftam_operator")
    finally:
        page.close()
        operator.end()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("efftam_gimbal", ()),
        ("efftam_position", ()),
        ("efftam_mavlink", ("links:=udpout:127.0.0.1:9", "landing_target:=true")),
        ("efftam_camera", ("stream:=udp://127.0.0.1:9", "calibration:={calibration}")),
    ],
)
def test_a_node_is_allowed_what_it_uses_and_nothing_else(peer, tmp_path, name, parameters):
    if name == "efftam_mavlink":
        pytest.importorskip("pymavlink", reason="needs MAVLink: pip install 'efftam_ros[flight]'")
    file = tmp_path / "camera.yaml"
    file.write_text(CALIBRATION)
    given = [word for text in parameters for word in ("-p", text.format(calibration=file))]
    program = (PROGRAMS | FLIGHT_PROGRAMS)[name]
    kind = getattr(import_module(program.module), program.node)
    node = Spinning(kind(namespace=peer.namespace, cli_args=["--ros-args", *given]))
    try:
        check(peer, name)
    finally:
        node.end()


def test_selecting_steering_and_stopping_are_three_rights():
    enclaves = [str(found.get("path")) for found in POLICY.findall("./enclaves/enclave")]
    root = {enclave: named(allowed(enclave, "service", "request"), "", enclave[1:]) for enclave in enclaves}
    asks = {enclave: {name.replace("//", "/") for name in names} for enclave, names in root.items()}

    def may_ask(name: str) -> set[str]:
        return {enclave for enclave, names in asks.items() if name in names}

    for name in ("select_target", "clear_target"):
        assert may_ask(f"/efftam_tracker/{name}") == {"/operator", "/efftam_operator"}
    assert may_ask("/efftam_gimbal/enable") == {"/efftam_operator"}
    assert may_ask("/efftam_mavlink/enable_follow") == {"/efftam_operator"}
    assert may_ask("/efftam_tracker/change_state") == {"/manager"}
    assert may_ask("/efftam_tracker/set_parameters") == {"/manager"}
    assert asks["/controller"] == set()

    def may_publish(topic: str) -> set[str]:
        return {enclave for enclave in enclaves if topic in allowed(enclave, "topic", "publish")}

    assert may_publish("select") == {"/operator", "/efftam_mavlink"}
    assert may_publish("velocity") == {"/efftam_tracker"}
    assert may_publish("rates") == {"/efftam_gimbal"}
    assert may_publish("position") == {"/efftam_position"}
