"""Playback in a real browser: exact images, jumps between states, two runs side by side."""

from __future__ import annotations

import pytest
from browser import Hands
from runs import BITS, BLOCK, FPS, write_run, write_video

from efftam_ros.core.geometry import Box
from efftam_ros.core.palette import STATE_STYLES
from efftam_ros.core.types import TrackState
from efftam_ros.operator.recorded.run import open_recording

pytest.importorskip("av", reason="videos need av: pip install efftam_ros[tools]")
COUNT = 100
STATES = "1" * 5 + "2" * 45 + "3" * 20 + "4" * 30


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_video(folder / "flight.mp4", COUNT)
    write_run(folder / "before.json", "flight.mp4", STATES)
    write_run(folder / "after.json", "flight.mp4", "1" * 5 + "2" * 95)
    return folder


@pytest.fixture
def open_run(browser, runs, serve):
    pages = []

    def open_(*names, viewport=None):
        page = browser.new_page(viewport=viewport or {"width": 1280, "height": 800})
        pages.append(page)
        page.goto(serve(recording=open_recording(*(runs / f"{name}.json" for name in names))).url)
        hands = Hands(page, (320, 192))
        hands.see()
        return hands

    yield open_
    for page in pages:
        page.close()


def shows(hands, index):
    """Wait for an image, and read its number from its pixels."""
    hands.page.wait_for_selector(f"#view[data-stamp='{index * 1_000_000_000 // FPS}']")
    seen = hands.pixels(*[(BLOCK * bit + BLOCK / 2, BLOCK) for bit in range(BITS)])
    assert sum(int(green > 128) << bit for bit, (_, green, _) in enumerate(seen)) == index


def test_steps_show_the_very_image(open_run):
    hands = open_run("before")
    shows(hands, 0)
    for key, index in ((".", 1), (".", 2), (",", 1), ("l", 26), ("l", 51), (".", 52), ("j", 27), (",", 26)):
        hands.keys(key)
        shows(hands, index)


def test_jumps_go_to_the_changes_of_state(open_run):
    hands = open_run("before")
    for index, word in ((5, "TRACKING"), (50, "COASTING"), (70, "LOST"), (99, "LOST")):
        hands.page.click("#to-next")
        shows(hands, index)
        hands.wait_text("#state", word)
    hands.keys("b")
    shows(hands, 70)


def test_the_ribbon_is_the_scrubber(open_run):
    hands = open_run("before")
    box = hands.page.locator("#plot").bounding_box()
    left, right = box["x"] + 110, box["x"] + box["width"] - 8
    hands.page.mouse.move((left + right) / 2, box["y"] + box["height"] - 8)
    hands.page.mouse.down()
    shows(hands, 49)
    hands.page.mouse.move(right, box["y"] + box["height"] - 8)
    shows(hands, 99)
    hands.page.mouse.up()
    slider = hands.page.get_by_role("slider")
    assert slider.get_attribute("aria-valuemax") == "99"
    slider.press("Home")
    shows(hands, 0)
    slider.press("ArrowRight")
    shows(hands, 1)


def test_playing_gets_to_the_end_and_stops(open_run):
    hands = open_run("before")
    hands.keys("k")
    hands.wait_text("#play", "Pause")
    shows(hands, 99)
    hands.wait_text("#play", "Play")


def test_nothing_can_be_selected_in_a_recording(open_run):
    hands = open_run("before")
    hands.drag(50, 50, 120, 120)
    assert hands.mode == "live"
    assert hands.page.locator("#freeze").is_hidden()


def test_what_was_last_seen_is_shown_after_a_jump_to_lost(open_run):
    hands = open_run("before")
    hands.keys(*"nnn")
    shows(hands, 70)
    seen = Box(60 + 2 * 69, 80, 40, 30)
    colours = hands.pixels(*[(seen.x + i / 4, seen.y) for i in range(60)])
    rgb = STATE_STYLES[TrackState.LOST].rgb
    assert min(sum(abs(a - b) for a, b in zip(c, rgb, strict=True)) for c in colours) < 30


def test_two_runs_show_one_image_with_two_answers(open_run):
    hands = open_run("before", "after")
    for _ in range(2):
        hands.keys("n")
    shows(hands, 50)
    other = Hands(hands.page, (320, 192), "#view-2")
    shows(other, 50)
    box = Box(60 + 2 * 50, 80, 40, 30)
    edge = [(box.x, box.y + i / 4) for i in range(40)]
    for view, state in ((hands, TrackState.COASTING), (other, TrackState.TRACKING)):
        rgb = STATE_STYLES[state].rgb
        assert min(sum(abs(a - b) for a, b in zip(c, rgb, strict=True)) for c in view.pixels(*edge)) < 30
    assert hands.page.locator("figcaption").all_inner_texts() == ["before", "after"]


def test_two_runs_on_a_phone_lie_below_each_other(open_run):
    hands = open_run("before", "after", viewport={"width": 360, "height": 740})
    first, second = (hands.page.locator(name).bounding_box() for name in ("#view", "#view-2"))
    assert second["y"] >= first["y"] + first["height"]
    assert hands.page.evaluate("document.documentElement.scrollWidth") <= 360
