"""What a prompt selects: the view in which the network is asked, the mask that counts, and how sure it is."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from support.clip import clip
from support.scripted_looks import ScriptedLooks
from support.scripted_pipeline import ScriptedPipeline
from support.scripted_target import OneTarget, candidates, one_target

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.crop import window_inside
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.selection import is_cut, whole
from efftam_ros.core.types import Candidates, Frame, Image, PipelineSpec, Prompt, TrackState
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.opening import open_pipeline, open_targets

SIZE = (1280, 720)
PICTURE = Image.from_array(np.zeros((SIZE[1], SIZE[0], 3), np.uint8))
SPEC = PipelineSpec(name="scripted", image_side=192, default_view="window")
ANIMAL = Box.from_centre(640, 360, 360, 290)
PATCH, HALF = Box.from_centre(640, 360, 60, 60), Box.from_centre(640, 350, 200, 180)


def answer(*found: tuple[Box, float]) -> Candidates:
    return candidates(*(box for box, _ in found), ious=[sure for _, sure in found])


def select(script, prompt, describe=None):
    """The track of a prompted frame, and the sides of the views in which the network was asked."""
    pipeline = ScriptedPipeline(script, SPEC)
    tracker = one_target(pipeline, describe=describe)
    track = tracker.step(Frame(PICTURE, 0), prompt)
    tracker.remember()
    return track, [round(call.arguments[1].extent[0]) for call in pipeline.calls_of("encode")]


def point(*places):
    return Prompt(points=places or ((640, 360),), labels=(1,) * max(1, len(places)))


MASK = np.zeros((480, 640), bool)
MASK[3:6, 7:13] = True


@pytest.mark.parametrize(
    ("prompt", "box", "marked"),
    [
        (Prompt(box=Box(-10, 460, 50, 50)), Box(0, 460, 40, 20), Box(0, 460, 40, 20)),
        (
            Prompt(box=Box(600, 20, 90, 10), points=((5.0, 6.0),), labels=(0,)),
            Box(600, 20, 40, 10),
            Box(5, 6, 635, 24),
        ),
        (point((3.0, 4.0), (9.0, 2.0)), None, Box(3, 2, 6, 2)),
        (Prompt(mask=MASK), Box(7, 3, 6, 3), Box(7, 3, 6, 3)),
    ],
)
def test_a_prompt_marks_what_of_it_is_in_the_image(prompt, box, marked):
    assert prompt.region(640, 480) == (box, marked)


@pytest.mark.parametrize(
    ("seen", "asked", "chosen"),
    [
        ({144: (PATCH, 0.5), 288: (HALF, 0.6), 576: (ANIMAL, 0.86)}, [144, 288, 576], 576),
        ({144: (PATCH, 0.9)}, [144], 144),  # something small
        (
            {144: (PATCH, 0.4), 288: (PATCH, 0.7), 576: (PATCH, 0.5), 1280: (PATCH, 0.3)},
            [144, 288, 576, 1280, 288],  # the surest, which is the one that is remembered
            288,
        ),
        # Filling the view, that is, cut by its border.
        ({144: (None, 0.85), 288: (None, 0.85), 576: (ANIMAL, 0.82)}, [144, 288, 576], 576),
    ],
)
def test_a_point_is_looked_at_in_wider_and_wider_views_until_the_mask_is_sure_and_whole(seen, asked, chosen):
    def script(index, view):
        box, quality = seen[round(view.extent[0])]
        return answer((box or view.to_image(Box(0, 0, 192, 192)), quality))

    looks = ScriptedLooks(lambda box: 1.0)
    track, sides = select(script, point(), looks)
    assert sides == asked
    assert looks.asked[0] == track.box
    assert track.view.extent[0] == pytest.approx(chosen)
    assert track.quality == np.float32(seen[chosen][1])
    assert track.box.edges() == pytest.approx(seen[chosen][0].edges())


@pytest.mark.parametrize(
    ("x", "y", "at_border"), [(20, 360, "x"), (1260, 360, "x1"), (640, 10, "y"), (640, 710, "y1")]
)
def test_the_border_of_the_view_cuts_a_mask_and_the_images_own_border_does_not(x, y, at_border):
    """One network pixel is 1.5 px; 4 are the border."""
    view = window_inside(SIZE, x, y, 288, 192)
    inner = Box.from_centre(*view.to_image(Box.from_centre(96, 96, 2, 2)).edges()[:2], 20, 20)
    assert not is_cut(inner, view, SIZE)
    for edge in ("x", "y", "x1", "y1"):
        for network_px, cuts in ((3.9, True), (4.1, False)):
            side = network_px if edge in ("x", "y") else 192 - network_px
            edges = dict(zip(("x", "y", "x1", "y1"), view.to_network(inner).edges(), strict=True)) | {
                edge: side
            }
            box = view.to_image(Box.from_edges(*edges.values()))
            assert is_cut(box, view, SIZE) is (cuts and edge != at_border)
    assert not is_cut(Box(0, 0, *SIZE), View.full(*SIZE, 192), SIZE)


@pytest.mark.parametrize(("of_whole", "chosen"), [(0.76, 1), (0.7, 0)])
def test_of_nested_masks_that_are_equally_sure_the_whole_is_selected(of_whole, chosen):
    assert whole(answer((PATCH, 0.8), (HALF, of_whole), (ANIMAL, 0.72))) == chosen


def test_a_point_whose_surest_mask_is_empty_is_what_another_shows():
    track, _ = select(lambda index, view: candidates(None, PATCH, ious=[0.9, 0.5]), point())
    assert (track.state, track.measured) == (TrackState.ACQUIRING, False)
    assert track.box.edges() == pytest.approx(PATCH.edges())


def test_a_larger_thing_beside_it_is_not_its_whole():
    assert whole(answer((PATCH, 0.8), (ANIMAL.moved(400, 0), 0.79))) == 0


LEFT_PART = Box(0, 200, 100, 300)


@pytest.mark.parametrize(
    ("drawn", "mask", "sure", "as_point", "doubt"),
    [
        (ANIMAL.moved(9, 0), ANIMAL, 0.6, HALF, ReasonCode.UNCLEAR_BOX),
        (ANIMAL.moved(9, 0), ANIMAL, 0.9, ANIMAL, ReasonCode.NONE),
        (Box(-300, 200, 400, 300), LEFT_PART, 0.9, LEFT_PART, ReasonCode.NONE),  # mostly outside the image
        (
            Box.from_centre(640, 360, 700, 700),
            ANIMAL,
            0.98,
            Box.from_centre(640, 360, 600, 600),
            ReasonCode.PART_OF_BOX,
        ),
    ],
)
def test_a_box_whose_centre_marks_something_else_or_that_holds_more_is_reported_as_weak(
    drawn, mask, sure, as_point, doubt
):
    """Then the mask, not the box, shows what the target looks like."""
    answers, looks = iter([answer((as_point, 0.5)), answer((mask, sure))]), ScriptedLooks(lambda box: 1.0)
    track, _ = select(lambda index, view: next(answers), Prompt(box=drawn), looks)
    assert track.measured
    assert track.reason.code is doubt
    assert looks.asked[0].edges() == pytest.approx((mask if doubt else drawn.clipped(*SIZE)).edges())


@pytest.mark.parametrize(("policy", "full"), [("default", False), ("samurai", True), ("efficienttam", True)])
def test_by_itself_a_bundles_automatic_view_leaves_the_references_as_they_are(policy, full):
    pipeline = ScriptedPipeline(lambda index, view: answer((PATCH, 0.9)), replace(SPEC, default_view="auto"))
    tracker = one_target(pipeline, TrackerConfig(policy=policy))
    assert tracker.step(Frame(PICTURE, 0), Prompt(box=PATCH)).view.is_full(*SIZE) == full
    for default, view in (("auto", "auto"), ("window", "bundle")):
        pipeline.spec = replace(SPEC, default_view=default)
        chosen = one_target(pipeline, TrackerConfig(policy=policy, view=view))
        assert not chosen.step(Frame(PICTURE, 0), Prompt(box=PATCH)).view.is_full(*SIZE)


@pytest.mark.parametrize("zoom", [1, 5])
def test_a_point_on_a_real_target_selects_all_of_it_at_any_size(zoom):
    """The car has 98 x 68 px in the clip; enlarged five times, 490 x 340 px."""
    bgr, box = clip(1, SIZE)[0]
    width, height = SIZE[0] // zoom, SIZE[1] // zoom
    x = round(min(max(box.cx - width / 2, 0), SIZE[0] - width))
    y = round(min(max(box.cy - height / 2, 0), SIZE[1] - height))
    image = cv2.resize(bgr[y : y + height, x : x + width], SIZE, interpolation=cv2.INTER_CUBIC)
    true = Box(*(zoom * v for v in (box.x - x, box.y - y, box.width, box.height)))
    tracker = OneTarget(
        open_targets(open_pipeline(PipelineConfig(threads=1)), TrackerConfig(camera_motion="off"))
    )
    track = tracker.step(Frame(Image.from_array(np.asarray(image)), 0), point((true.cx, true.cy)))
    assert iou(track.box, true) > 0.9


@pytest.mark.parametrize(
    ("seen", "proposed"),
    [
        (candidates(None), None),
        (answer((PATCH, 0.8), (HALF, 0.79)), HALF),
        (answer((Box(-20, 300, 60, 60), 0.9)), Box(0, 300, 40, 60)),
    ],
)
def test_the_whole_of_what_is_seen_in_the_image_is_proposed(seen, proposed):
    tracker = one_target(ScriptedPipeline(lambda index, view: seen, SPEC))
    assert tracker.propose(Frame(PICTURE, 0), point()) == proposed
    assert tracker.state is TrackState.IDLE
