"""What is computed for viewers of several targets: one list of detections, one picture, one label image."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from std_msgs.msg import Header

from efftam_ros.core.geometry import Box
from efftam_ros.core.targets import Step
from efftam_ros.core.types import Image, Motion, Track, TrackState
from efftam_ros.images.palette import TARGET_RGB
from efftam_ros.ros.tracker import publishing
from simulation.null_pipeline import rectangle_mask

WIDTH, HEIGHT = 320, 240
HEADER = Header(frame_id="camera")
PIXELS = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
SEEN = {5: Box(200.0, 80.0, 60.0, 50.0), 0: Box(40.0, 80.0, 60.0, 50.0), 2: Box(90.0, 110.0, 60.0, 50.0)}
"""In the order of their answers: steered by 5; 0 and 2 overlap."""
VISION = SimpleNamespace(
    Detection2DArray=lambda header: SimpleNamespace(header=header, detections=[]),
    Detection2D=lambda header, id, results: SimpleNamespace(
        header=header,
        id=id,
        results=results,
        bbox=SimpleNamespace(center=SimpleNamespace(position=SimpleNamespace(x=0.0, y=0.0))),
    ),
    ObjectHypothesisWithPose=lambda: SimpleNamespace(hypothesis=SimpleNamespace(class_id="", score=0.0)),
)


def step(target_id: int, state: TrackState = TrackState.TRACKING) -> Step:
    box = None if state is TrackState.LOST else SEEN[target_id]
    motion = None if box is None else Motion(0, box, (0.0, 0.0), np.eye(4))
    track = Track(0, state, box, box is not None, 0.9, 0.8, 0.0, motion, image_size=(WIDTH, HEIGHT))
    return Step(target_id, track, SimpleNamespace(mask=lambda: rectangle_mask(box, WIDTH, HEIGHT)))


class Scene:
    """Views with a subscriber to each topic but those of ``without``."""

    def __init__(self, monkeypatch, without: tuple[str, ...] = ()) -> None:
        self.published: dict[str, list] = {}
        self.without = without
        monkeypatch.setattr(publishing, "optional_messages", lambda package: VISION)
        self.views = publishing.Views(self.create, with_detections=True)

    def create(self, kind, topic, depth):
        sent = self.published.setdefault(topic, [])
        return SimpleNamespace(
            publish=sent.append, get_subscription_count=lambda: int(topic not in self.without)
        )

    def show(self, *steps: Step) -> dict[str, object]:
        """The messages of one image; ``steps``: its answers, that of the steered target first."""
        for sent in self.published.values():
            sent.clear()
        for number, one in enumerate(steps):
            self.views.add(HEADER, Image.from_array(PIXELS), one, number == 0, len(steps) > 1)
        self.views.publish_common(HEADER, {one.target_id: one.track for one in steps})
        return {topic: sent[0] for topic, sent in self.published.items() if len(sent) == 1}


@pytest.fixture
def scene(monkeypatch) -> Scene:
    return Scene(monkeypatch)


def picture_of(message) -> np.ndarray:
    return np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, -1)


def test_all_targets_are_in_one_list_of_detections_by_id(scene):
    shown = scene.show(*map(step, SEEN))["detections"]
    assert shown.header == HEADER
    assert [one.id for one in shown.detections] == ["0", "2", "5"]
    for one in shown.detections:
        box = SEEN[int(one.id)]
        centre = one.bbox.center.position
        assert (centre.x, centre.y, one.bbox.size_x, one.bbox.size_y) == (box.cx, box.cy, 60.0, 50.0)
        assert one.results[0].hypothesis.score == 0.9
        assert one.header == HEADER


def test_a_lost_target_is_no_detection_and_the_others_are(scene):
    shown = scene.show(step(5), step(0, TrackState.LOST), step(2))["detections"]
    assert [one.id for one in shown.detections] == ["2", "5"]


def test_one_picture_shows_each_target_in_its_colour_with_its_id(scene):
    picture = picture_of(scene.show(*map(step, SEEN))["overlay"])
    for target_id, box in SEEN.items():
        x, y = int(box.x), int(box.y)
        assert (picture[y - 2 : y + 3, x + 40] == TARGET_RGB[target_id][::-1]).all(axis=-1).any()
    assert (picture[:40] == TARGET_RGB[5][::-1]).all(axis=-1).any()  # the words are of the steered one
    assert (PIXELS == 90).all()  # the image itself is left as it came


def test_a_single_target_has_the_colour_of_its_state(scene):
    picture = picture_of(scene.show(step(5))["overlay"])
    assert not (picture == TARGET_RGB[5][::-1]).all(axis=-1).any()


def test_masks_are_one_label_image_and_where_they_overlap_the_first_answer_counts(scene):
    shown = scene.show(*map(step, SEEN))
    labels = picture_of(shown["mask_labels"])[:, :, 0]
    assert set(np.unique(labels)) == {0, 1, 3, 6}
    assert (labels[80:130, 40:100] == 1).all()
    assert (labels[110:160, 100:150] == 3).all()
    mask = picture_of(shown["mask"])[:, :, 0]
    assert np.array_equal(mask > 0, labels == 6)  # of the steered target alone


def test_nothing_is_left_over_for_the_next_image(scene):
    scene.show(*map(step, SEEN))
    shown = scene.show(step(2))
    assert [one.id for one in shown["detections"].detections] == ["2"]
    assert set(np.unique(picture_of(shown["mask_labels"]))) == {0, 3}


def test_what_nobody_looks_at_is_not_computed(monkeypatch):
    scene = Scene(monkeypatch, without=("mask", "mask_labels", "overlay"))
    unread = step(2)._replace(tracker=SimpleNamespace(mask=lambda: pytest.fail("a mask was made")))
    assert list(scene.show(step(5)._replace(tracker=unread.tracker), unread)) == ["detections"]
