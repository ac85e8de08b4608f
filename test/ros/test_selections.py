"""Commands by service and topic: which target they are for, and what becomes of each."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from builtin_interfaces.msg import Time
from efftam_ros.msg import TargetSelection
from geometry_msgs.msg import Point, PointStamped
from node_bench import PERIOD_NS, PROMPTS, Bench, following
from std_msgs.msg import Header, UInt8

from efftam_ros.core.errors import InputError
from efftam_ros.images.message import stamp_ns
from efftam_ros.messages.fields import Outcome
from efftam_ros.ros.tracker.frame_buffer import ALL, Command
from efftam_ros.ros.tracker.parameters import NodeConfig
from efftam_ros.ros.tracker.receiving import Selections

ACCEPTED, REFUSED, CLEARED = Outcome.ACCEPTED, Outcome.REFUSED, Outcome.CLEARED


@pytest.fixture
def bench(monkeypatch) -> Bench:
    bench = Bench(monkeypatch)
    bench.image()
    return bench


def selection(bench, k: int = 0, ago: float = 0.0, **fields) -> TargetSelection:
    """On target ``k`` in the image so many before the newest."""
    x, y, width, height = PROMPTS[k].box.xywh()
    message = TargetSelection(x=x, y=y, width=width, height=height, target_id=k, **fields)
    stamp = bench.now_ns - round(ago * PERIOD_NS)
    message.header.stamp = Time(sec=stamp // 10**9, nanosec=stamp % 10**9)
    return message


def outcomes(bench) -> list[tuple[Outcome, int, str]]:
    return [(Outcome(m.outcome), m.target_id, m.message) for m in bench.outputs.sent("selection_result")]


@pytest.mark.parametrize("way", ["service", "selection"])
@pytest.mark.parametrize(
    ("ids", "steered", "asked", "cleared", "refusal"),
    [
        ((0, 1), 0, 1, 1, ""),
        ((0, 1), 1, 0, 0, ""),  # by its id, also while another is steered by
        ((1, 2), 1, 0, 1, ""),  # without a target 0 it is the steered one
        ((0, 1), 0, ALL, ALL, ""),
        ((0, 1), 0, 5, None, "there is no target 5; present targets: 0, 1"),
        (
            (1, 2),
            None,
            0,
            None,
            "target_id is 0, the steered target, but no target is steered; give a target's number;"
            " present"
            " targets: 1, 2",
        ),
    ],
)
def test_clear_is_for_one_target_or_all_or_refused_with_those_that_are(
    bench, way, ids, steered, asked, cleared, refusal
):
    following(bench, 3)
    bench.command(next(k for k in range(3) if k not in ids))
    if steered is not None:  # 0, the first one, is cleared
        bench.command(steered, steers=True)
    bench.image()
    before = len(outcomes(bench))
    said = ""
    try:
        if way == "service":
            bench.commands.clear(Command(None, asked))
        else:
            bench.commands.select(TargetSelection(kind=TargetSelection.CLEAR, target_id=asked))
    except InputError as error:
        said = str(error)
    bench.work()
    assert said == refusal
    assert outcomes(bench)[before:] == [(REFUSED, asked, refusal) if refusal else (CLEARED, cleared, "")]
    left = [k for k in ids if cleared is None or cleared not in (k, ALL)]
    assert [box.target_id for box in bench.image()] == (left or [0])


def test_without_a_target_there_is_none_to_clear(bench):
    with pytest.raises(InputError, match="there is no target to clear"):
        bench.commands.clear(Command(None, 0))


def test_whom_to_steer_by_must_be_there(bench):
    following(bench, 2)
    bench.node.hear["steer_target"](UInt8(data=1))
    bench.work()
    assert {box.target_id: box.steered for box in bench.image()} == {0: False, 1: True}
    bench.node.hear["steer_target"](UInt8(data=5))
    refusal = "there is no target 5; present targets: 0, 1"
    with pytest.raises(InputError, match=refusal):
        bench.commands.steer(5)
    assert outcomes(bench)[-2:] == [(REFUSED, 5, refusal)] * 2
    assert bench.verdict().values["last refused selection"] == refusal
    bench.work()
    assert {box.target_id: box.steered for box in bench.image()} == {0: False, 1: True}


def test_selections_are_counted_once_they_are_accepted_and_one_that_is_overtaken_is_refused(bench):
    with pytest.raises(InputError, match="outside the image"):
        bench.commands.select(TargetSelection(x=500.0, width=20.0, height=20.0))
    numbers = [bench.commands.select(selection(bench))[0].number for _ in range(2)]
    assert (numbers, bench.commands.accepted) == ([1, 2], 2)
    bench.work()
    assert outcomes(bench)[-2:] == [
        (REFUSED, 0, "this command was replaced by a newer one before it was carried out"),
        (ACCEPTED, 0, ""),
    ]
    result = bench.outputs.sent("selection_result")[-1]
    assert (result.selection, stamp_ns(result.header.stamp)) == (2, bench.now_ns)
    bench.commands.select(selection(bench))
    bench.commands.clear(Command(None, 0))
    bench.work()
    assert [outcome for outcome, *_ in outcomes(bench)[-2:]] == [REFUSED, CLEARED]


@pytest.mark.parametrize(("off", "said"), [(0.0, ""), (0.3, "30.0 ms"), (-0.3, "30.0 ms")])
def test_which_image_is_taken_in_the_place_of_the_one_named_is_said(bench, off, said):
    for _ in range(5):
        bench.image()
    _, note = bench.commands.select(selection(bench, ago=2.0 + off))
    bench.work()
    taken_s = (bench.now_ns - 2 * PERIOD_NS) * 1e-9
    assert note == (
        f"no image has the given stamp; the nearest one, of {taken_s:.9f}, is used ({said} away)"
        if said
        else ""
    )
    assert outcomes(bench)[-1] == (ACCEPTED, 0, note)
    unnamed = selection(bench)
    unnamed.header.stamp.sec = unnamed.header.stamp.nanosec = 0  # the newest one
    assert bench.commands.select(unnamed)[1] == ""


def test_a_flood_of_commands_leaves_a_short_log(bench):
    for _ in range(100):
        bench.node.hear["select"](TargetSelection(x=500.0, width=20.0, height=20.0))
        bench.commands.select(selection(bench))
        bench.work()
        bench.command(0)
    assert len(bench.logged) < 60
    assert 1 <= sum("selection refused" in line for line in bench.logged) < 10


def test_before_the_first_image_nothing_can_be_selected(monkeypatch):
    bench = Bench(monkeypatch)
    with pytest.raises(InputError, match="no image has arrived yet"):
        bench.commands.select(selection(bench))


@pytest.mark.parametrize("skipped", [0, 1])
def test_an_image_is_kept_for_who_draws_on_it(bench, skipped):
    """Of older images every second one is dropped."""
    for _ in range(skipped):
        bench.image()
    held = selection(bench)
    bench.node.hear["keep_image"](held.header)
    for _ in range(40):
        bench.image()
    assert bench.commands.select(held)[1] == ""
    bench.node.hear["keep_image"](Header(stamp=Time(sec=77)))
    assert outcomes(bench)[-1][0] is REFUSED


@pytest.mark.parametrize(
    ("stamp_s", "kind", "refusal"),
    [
        (None, TargetSelection.BOX, ""),
        (77, TargetSelection.BOX, "ahead of the newest image"),
        (None, TargetSelection.CLEAR, "a selection of kind CLEAR has no object"),
        (None, TargetSelection.MASK, "mask"),
    ],
)
def test_a_proposal_selects_nothing_and_what_can_t_be_selected_is_not_proposed(bench, stamp_s, kind, refusal):
    asked = selection(bench, kind=kind)
    if stamp_s is not None:
        asked.header.stamp = Time(sec=stamp_s)
    bench.node.hear["propose"](asked)
    bench.work()
    (told,) = bench.outputs.sent("proposal")
    assert refusal in told.reason
    if refusal:
        assert math.isnan(told.x)
    else:
        assert (told.reason, told.x, told.width) == ("", asked.x, asked.width)
    assert outcomes(bench) == []
    assert bench.image()[0].selection == 0


def test_of_two_proposals_the_newer_one_is_made(bench):
    for k in range(2):
        bench.node.hear["propose"](selection(bench, k))
    bench.work()
    older, newer = bench.outputs.sent("proposal")
    assert (older.target_id, older.reason) == (
        0,
        "this request was replaced by a newer one before it was carried out",
    )
    assert (newer.target_id, newer.reason, newer.x) == (1, "", PROMPTS[1].box.x)


@pytest.mark.parametrize(
    ("stamp_ago", "frame_id", "taken_ago", "words"),
    [
        (1.0, "", 1, ()),
        (1.0, "camera", 1, ()),
        (-7.0, "", 0, ()),  # RViz stamps clicks with the time of the click
        (None, "", 0, ()),  # a Point has none
        (0.0, "map", None, ("'map'", "'camera'")),
    ],
)
def test_a_click_selects_its_point_on_its_image_or_on_the_newest(
    bench, stamp_ago, frame_id, taken_ago, words
):
    bench.image()
    bench.image()
    box = PROMPTS[1].box
    click = point = Point(x=box.cx, y=box.cy)
    if stamp_ago is not None:
        click = PointStamped(point=point, header=selection(bench, ago=stamp_ago).header)
        click.header.frame_id = frame_id
    bench.node.hear["click"](click)
    bench.work()
    ((outcome, _, reason),) = outcomes(bench)
    assert outcome is (REFUSED if words else ACCEPTED)
    assert all(word in reason for word in words)
    if not words:
        first = next(box for box in bench.outputs.sent("bbox") if box.selection)
        assert stamp_ns(first.header.stamp) == bench.now_ns - taken_ago * PERIOD_NS
        assert (first.x + first.width / 2, first.y + first.height / 2) == (box.cx, box.cy)


@pytest.mark.parametrize(
    ("clicks", "kind"), [("off", None), ("point", Point), ("point_stamped", PointStamped)]
)
def test_clicks_are_taken_as_the_parameter_says(bench, clicks, kind):
    heard = {}
    subscriptions = SimpleNamespace(add=lambda kind, topic, *how: heard.update({topic: kind}))
    exchange = SimpleNamespace(
        buffer=bench.buffer, outputs=bench.outputs, statistics=bench.statistics, log=None
    )
    Selections(exchange, NodeConfig(clicks=clicks), subscriptions, str, 0, 1)
    assert heard.get("click") is kind
