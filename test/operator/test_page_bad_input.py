"""What goes wrong in the field, as a person at the page sees it."""

from __future__ import annotations

import re
import time

from barcode_feed import RecordedSteering
from thin_link import DyingLink, thin_link

from benchmarks.browser import one_selection, until
from efftam_operator.feed import Picture
from efftam_ros.core.errors import InputError


def banners(hands) -> str:
    return hands.page.locator("#banners").inner_text()


def test_without_an_image_the_page_says_so(serve, feed, open_page):
    feed.blind = True
    hands = open_page(serve(feed).url, wait=False)
    hands.wait_text("#banners", "NO PICTURE")
    hands.wait_text("#banners", "the page gets none")
    hands.drag(200, 100, 260, 150)
    assert feed.selections == []


def test_an_image_that_turns_out_unreadable_when_it_is_drawn_is_named(serve, feed, open_page):
    def broken():
        raise InputError("the camera's JPEG (12 bytes) can't be read; is it cut off?")

    hands = open_page(serve(feed).url)
    feed.remake = lambda picture: Picture(picture.stamp_ns, bgr=broken)
    hands.wait_text("#banners", "is it cut off?")
    feed.remake = None
    until(lambda: banners(hands) == "")


def test_a_proxy_that_buffers_makes_an_old_picture_and_the_stamp_stays_true(serve, feed, open_page):
    held_s = 0.0
    with thin_link(serve(feed).port, 1e9, lambda: held_s) as port:
        hands = open_page(f"http://127.0.0.1:{port}/")
        until(lambda: hands.page.locator("#age").inner_text().endswith("ms"))
        held_s = 2.0
        hands.wait_text("#banners", "PICTURE OLD")
        until(lambda: re.search(r"(1\.9|[2-9]\.\d)\ss", hands.page.locator("#age").inner_text()))
        drawn_on = int(hands.page.get_attribute("#view", "data-stamp"))
        hands.drag(200, 100, 260, 150)
        selection = one_selection(feed)
        assert selection.stamp_ns in feed.stamps
        assert selection.stamp_ns >= drawn_on


def test_a_hidden_tab_takes_no_pictures_and_goes_on_when_it_is_seen(hands, feed):
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    hands.page.evaluate(hide, True)
    until(lambda: not feed.watched[-1])
    time.sleep(0.2)  # one may be under way
    before = hands.page.get_attribute("#view", "data-stamp")
    time.sleep(0.3)
    assert hands.page.get_attribute("#view", "data-stamp") == before
    hands.page.evaluate(hide, False)
    hands.see_newer(feed.stamps[-1])


def test_a_dead_socket_is_replaced_and_nothing_is_delivered_late(serve, feed, open_page):
    steering = RecordedSteering()
    server = serve(feed, steering=steering)
    link = DyingLink(server.port)
    try:
        hands = open_page(f"http://127.0.0.1:{link.port}/")
        hands.wait_text("#steering-text", "GIMBAL OFF")
        link.cut()
        hands.page.click("#stop")  # nobody can know yet that the link is dead
        hands.wait_text("#notices .refusal", "STOP is not answered")
        hands.wait_text("#banners", "NO LINK")
        hands.wait_text("#steering-text", "GIMBAL UNKNOWN")
        assert hands.page.locator("#steer").is_disabled()
        hands.page.click("#stop")
        hands.wait_text("#notices .refusal", "STOP was not sent")
        hands.drag(200, 100, 260, 150)
        hands.wait_text("#notices .refusal", "nothing was sent")
        link.reopen()
        until(lambda: "NO LINK" not in banners(hands))
        until(lambda: server.health()["viewers"] == 2)
        # What lay in the dead socket comes after all; the server ends that socket at once.
        link.heal()
        until(lambda: server.health()["viewers"] == 1)
        assert steering.calls == []
        assert feed.selections == []
        hands.page.click("#stop")
        until(lambda: steering.calls == ["stop"])
    finally:
        link.close()
