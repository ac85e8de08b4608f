"""The operator's node beside the real tracker on the middleware, with pages on sockets."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import urllib.request
from contextlib import ExitStack
from typing import Any

import cv2
import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="the operator's page needs aiohttp: pip install efftam_ros[operator]")

from efftam_ros.msg import BoundingBox
from level_pipeline import bright_box, grey_box, scene
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from operator_page import Operator, Page, address_in, operator_command
from ros_helpers import (
    box_of,
    image_message,
    new_namespace,
    stamp_of,
)

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou

LASTING = ("-p", "image_timeout:=60.0")


class Chain:
    """A tracker with its peer, the operator, and pages."""

    def __init__(self, peer, operator: Operator, close_later) -> None:
        self.peer, self.operator, self.url, self._close_later = peer, operator, operator.url, close_later

    def page(self) -> Page:
        """Open a page and wait until the operator's subscription to images is there."""
        page = Page(self.url)
        self._close_later.append(page)
        self.peer.wait(lambda: self.watchers() == 1, "the operator to subscribe to images")
        self.peer.wait(lambda: subscribes(self.peer, "bbox"), "the operator to subscribe to bbox")
        return page

    def health(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + "health") as answer:
            return json.loads(answer.read())

    def watchers(self) -> int:
        """Nodes called efftam_operator that subscribe to the images."""
        topic = self.peer.images.topic_name
        found = self.peer.node.get_subscriptions_info_by_topic(topic)
        return sum(info.node_name == "efftam_operator" for info in found)

    def show_until_seen(self, page: Page, first: int) -> int:
        """Send images from ``first`` on until the page shows one, as a new subscription may miss some; the
        number of the one shown."""
        for i in range(first, first + 40):
            self.peer.show(i, scene(0))
            self.peer.spin_for(0.1)
            if stamp_of(i) in page.stamps:
                return i
        raise AssertionError("no image reaches the page")


@pytest.fixture
def chain(tracker):
    """Start both: ``chain("-p", "lease_s:=5.0", tracker_arguments=(...))``."""
    pages: list[Page] = []
    with ExitStack() as made:

        def start(*arguments, tracker_arguments=LASTING, **keywords):
            peer = tracker(*tracker_arguments, **keywords)
            operator = Operator(peer.namespace, *arguments)
            made.callback(operator.end)
            peer.spin_for(0.3)
            return Chain(peer, operator, pages)

        yield start
        for page in pages:
            page.close()


@pytest.fixture(scope="module")
def _lasting_chain(lasting_tracker):
    pages: list[Page] = []
    peer = lasting_tracker(*LASTING)
    operator = Operator(peer.namespace, "-p", "diagnostics_period:=0.1")
    yield Chain(peer, operator, pages), pages
    operator.end()


@pytest.fixture
def lasting_chain(_lasting_chain):
    """The same for all tests that leave both processes as they are: without a target, stamps start over."""
    made, pages = _lasting_chain
    made.peer.begin_anew()
    yield made
    while pages:
        pages.pop().close()


def subscribes(peer, topic: str) -> bool:
    found = peer.node.get_subscriptions_info_by_topic(peer.node.resolve_topic_name(topic))
    return any(info.node_name == "efftam_operator" for info in found)


def select(page: Page, box, stamp: int, id: str) -> None:
    page.send(op="select", id=id, stamp=str(stamp), kind="box", box=list(box.xywh()))


def test_picture_and_box_of_an_image_reach_the_page_with_its_stamp(lasting_chain):
    peer, page = lasting_chain.peer, lasting_chain.page()
    start = lasting_chain.show_until_seen(page, 0)
    number = peer.follow(start, bright_box(0)).selection
    checked = 0
    for i in range(start + 1, start + 12):
        message, stamp = peer.show(i, scene(i - start)), stamp_of(i)
        peer.wait(lambda stamp=stamp: stamp in page.stamps, f"the picture of image {i}")
        told = page.target(stamp_of(i))
        if told is None:
            continue  # shown before its answer came
        assert told["box"] == pytest.approx(box_of(message).xywh(), abs=0.01)
        assert told["selection"] == message.selection == number
        assert told["state"] in ("ACQUIRING", "TRACKING")
        assert told["velocity"] == pytest.approx(
            [peer.velocity_of(stamp_of(i)).velocity_x, peer.velocity_of(stamp_of(i)).velocity_y], abs=0.01
        )
        shown = cv2.imdecode(np.frombuffer(page.frames[-1].payload, np.uint8), cv2.IMREAD_COLOR)
        assert shown.shape == scene(0).shape
        assert np.abs(shown.astype(int) - scene(i - start)).mean() < 5
        checked += 1
        if checked == 3:
            break
    assert checked == 3


def test_an_open_page_is_told_the_limits_of_the_tracker_also_when_another_one_runs(chain, tracker):
    running = chain(tracker_arguments=(*LASTING, "-p", "selection_buffer:=7.25"))
    peer, page = running.peer, running.page()

    def wait_limits(buffer_s: float, most: int) -> None:
        wanted = {"op": "limits", "buffer_s": buffer_s, "max_targets": most}
        peer.wait(lambda: page.messages("limits")[-1:] == [wanted], f"limits {wanted}")

    wait_limits(7.25, 4)
    peer.process.end()
    another = ("-p", "selection_buffer:=5.0", "-p", "max_targets:=3")
    tracker(*LASTING, *another, namespace=peer.namespace)
    wait_limits(5.0, 3)


def test_a_page_s_tap_is_answered_by_the_box_that_the_tracker_proposes(lasting_chain):
    peer, page = lasting_chain.peer, lasting_chain.page()
    peer.wait(lambda: subscribes(peer, "proposal"), "the operator to subscribe to proposal")
    i = lasting_chain.show_until_seen(page, 0)
    tap = {"op": "propose", "id": "p", "kind": "points", "labels": [1]}
    middle = [[grey_box(0).cx, grey_box(0).cy]]
    page.send(**tap, stamp=str(stamp_of(i)), points=middle)
    page.wait(lambda: page.messages("proposal"))
    (told,) = page.messages("proposal")
    assert told["stamp"] == str(stamp_of(i))
    assert iou(Box(*told["box"]), grey_box(0)) > 0.9
    page.send(**tap, stamp=str(2**63 - 1), points=middle)
    page.wait(lambda: len(page.messages("proposal")) == 2)
    assert page.messages("proposal")[1]["box"] is None
    assert "the largest stamp" in page.messages("proposal")[1]["reason"]


def test_a_page_adds_a_target_steers_by_it_and_removes_it(chain):
    running = chain(tracker_arguments=(*LASTING, "-p", "max_targets:=3"))
    peer, page = running.peer, running.page()
    i = running.show_until_seen(page, 0)

    def targets() -> dict[int, bool]:
        """By id, whether it is steered by, as of a new image."""
        nonlocal i
        i += 1
        peer.show(i, scene(0))
        page.wait(lambda: page.target(stamp_of(i)) is not None)
        peer.spin_for(0.1)
        track = next(m for m in reversed(page.messages("track")) if m["stamp"] == str(stamp_of(i)))
        return {t["id"]: t["steered"] for t in track["targets"] if t["state"] != "IDLE"}

    select(page, bright_box(0), stamp_of(i), "first")
    peer.wait(lambda: targets() == {0: True}, "the first target")
    box = list(grey_box(0).xywh())
    page.send(op="select", id="second", stamp=str(stamp_of(i)), kind="box", box=box, target=255)
    peer.wait(lambda: targets() == {0: True, 1: False}, "the second target")
    page.send(op="steer_by", id="steer", target=1)
    peer.wait(lambda: targets() == {0: False, 1: True}, "the second target to be steered by")
    page.send(op="steer_by", id="nobody", target=7)
    peer.wait(lambda: page.answer("nobody"), "the answer")
    assert "no target 7" in page.answer("nobody")["message"]
    page.send(op="clear", id="clear", target=1)
    peer.wait(lambda: targets() == {0: False}, "the first target alone")


def test_two_trackers_on_one_graph_are_both_named(chain):
    running = chain()
    page = running.page()
    running.show_until_seen(page, 0)
    running.peer.wait(lambda: len(page.status["trackers"]) == 1, "the tracker to be named")
    other = running.peer.node.create_publisher(BoundingBox, "bbox", 1)
    running.peer.wait(lambda: len(page.status["trackers"]) == 2, "both to be named")
    assert any(name.endswith("/efftam_tracker") for name in page.status["trackers"])
    running.peer.node.destroy_publisher(other)
    running.peer.wait(lambda: len(page.status["trackers"]) == 1, "one to be left")


def test_a_tracker_that_is_not_active_is_called_so(chain):
    running = chain()
    peer, page = running.peer, running.page()
    client = peer.node.create_client(ChangeState, "efftam_tracker/change_state")
    peer.wait(client.service_is_ready, "the service change_state")
    request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_DEACTIVATE))
    assert peer.call(client, request).success
    peer.wait(lambda: page.status.get("tracker") == "inactive", "the tracker to be called inactive")
    select(page, bright_box(0), stamp_of(0), "c1")
    peer.wait(lambda: page.answer("c1"), "the answer")
    assert "inactive" in page.answer("c1")["message"]
    peer.process.end()
    peer.wait(lambda: page.status["tracker"] == "silent", "a tracker that is gone to be called silent")


@pytest.fixture
def operator(ros):
    """``operator(*arguments)`` starts the page's node alone."""
    with ExitStack() as made:

        def start(*arguments: str) -> Operator:
            started = Operator(new_namespace(), *arguments)
            made.callback(started.end)
            return started

        yield start


def test_without_a_tracker_a_command_is_answered_at_once(operator):
    page = Page(operator().url)
    select(page, bright_box(0), 0, "c1")
    page.wait(lambda: page.answer("c1"), 2.0)
    assert "efftam_tracker/select_target" in page.answer("c1")["message"]
    page.close()


def test_a_signal_ends_the_process_in_order(processes, peers):
    peer = peers(new_namespace())
    process = processes(operator_command(peer.namespace))
    peer.wait(lambda: address_in(process.output), "the operator's address")
    page = Page(address_in(process.output))
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    assert "Traceback" not in process.output
    page.close()


def test_diagnostics_and_health_tell_of_the_chain(lasting_chain):
    peer, page = lasting_chain.peer, lasting_chain.page()
    numbers = itertools.count(lasting_chain.show_until_seen(page, 0) + 1)

    def shows_all() -> bool:
        peer.show(next(numbers), scene(0))
        pages = [s for s in peer.diagnostics if s.name.endswith("efftam_operator: page")]
        values = {v.key: v.value for v in pages[-1].values} if pages else {}
        return values.get("viewers") == "1" and values["tracker"] == "alive" and float(values["image_hz"]) > 0

    peer.wait(shows_all, "diagnostics of the page")
    with urllib.request.urlopen(lasting_chain.url + "health") as answer:
        assert b'"viewers":1' in answer.read()


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("port:=70000", ["port", "65535"]),
        ("on_operator_lost:=land", ["land", "keep, clear"]),
        ("certificate:=/nowhere.pem", ["both certificate and key"]),
        ("token:=short", ["token", "5 characters"]),
        ("qos_overrides./bbox.subscription.reliability:=reliabel", ["bbox", "reliabel", "best_effort"]),
        ("certificate:=off", ["certificate", 'write "off"']),
    ],
)
def test_a_parameter_that_is_not_allowed_is_refused(operator, argument, words):
    with pytest.raises(InputError) as refusal:
        operator("-p", argument)
    for word in words:
        assert word in str(refusal.value)


def test_a_typo_in_the_file_shared_with_the_tracker_is_told_and_the_trackers_own_parameters_are_not(
    operator, tmp_path, capfd
):
    file = tmp_path / "both.yaml"
    file.write_text(
        "/**:\n  ros__parameters:\n    lost_after: 2.0\n    jpg_quality: 80\n"
        "    frobnicate: true\n    use_sim_time: false\n"
    )
    operator("--params-file", str(file))
    lines = [line for line in capfd.readouterr().err.splitlines() if "not known" in line]
    assert [line.partition("parameter ")[2] for line in lines] == [
        "'jpg_quality' is not known and has no effect; did you mean jpeg_quality?",
        "'frobnicate' is not known and has no effect; the files in config/ contain all parameters",
    ]


def test_a_port_in_use_is_one_line_and_code_2(processes):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = processes(operator_command(new_namespace(), "-p", f"port:={port}"))
        assert process.wait() == 2
    (line,) = [text for text in process.output.splitlines() if text.startswith("efftam_operator:")]
    assert str(port) in line
    assert "Traceback" not in process.output


def test_an_encoding_that_nobody_knows_is_named_on_the_page(lasting_chain):
    peer, page = lasting_chain.peer, lasting_chain.page()
    number = lasting_chain.show_until_seen(page, 0)

    def is_named() -> bool:
        nonlocal number
        number += 1
        message = image_message(scene(0), stamp_of(number))
        message.encoding = "yuv99"
        peer.images.publish(message)
        peer.spin_for(0.2)
        return "yuv99" in page.status.get("picture", "")

    peer.wait(is_named, "word of the encoding")
    lasting_chain.show_until_seen(page, number + 1)
    peer.wait(lambda: page.status["picture"] == "", "the word to go")
