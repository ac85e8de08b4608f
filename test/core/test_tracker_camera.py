"""The tracker under a moving camera: what it believes moves with the image."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from support.rotation import rotation_motion
from support.scripted_target import FPS, candidates, followed

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import CameraMotion, Image, PipelineSpec, Prompt, Track, TrackState

PERIOD_S = 0.04
PAN_PX = 25.0
PICTURE = np.zeros((720, 1280, 3), np.uint8)
SPEC = PipelineSpec(name="scripted", image_side=192)
START = Box.from_centre(300, 360, 60, 40)
PANS_AT, GONE_AT, FRAMES = 12, 16, 22


class Pan:
    """Tells a camera that rests, then pans: the image moves by ``PAN_PX`` per frame. ``recognises``: the
    place of the kept image is known again after the pan, though not the pan itself. Without ``pans`` it
    rests. ``unknown_at``: one frame to which its motion is not known."""

    def __init__(
        self,
        known: bool = True,
        recognises: bool = False,
        pans: bool = True,
        unknown_at: int | None = None,
    ) -> None:
        self._frame, self._known, self._recognises, self._pans = 0, known, recognises, pans
        self._unknown_at = unknown_at

    def reset(self) -> None:
        self._frame = 0

    def keep(self, targets: Sequence[Box]) -> int:
        return self._frame

    def since(self, kept: object) -> CameraMotion:
        if not self._recognises:
            return CameraMotion(None, "not known")
        matrix = np.eye(3)
        matrix[0, 2] = PAN_PX * (max(0, self._frame - PANS_AT) - max(0, kept - PANS_AT))
        return CameraMotion(matrix)

    def estimate(self, image: Image, stamp_ns: int, targets: Sequence[Box]) -> CameraMotion:
        self._frame += 1
        if not self._known or self._frame - 1 == self._unknown_at:
            return CameraMotion(None, "not known")
        matrix = np.eye(3)
        matrix[0, 2] = PAN_PX if self._pans and self._frame > PANS_AT else 0.0
        return CameraMotion(matrix)


def place(i: int, speed: float = 0.0) -> Box:
    """A target on the ground, with this speed over it in px per frame, in the image of a camera that pans
    from frame ``PANS_AT`` on."""
    return START.moved(PAN_PX * max(0, i - PANS_AT) + speed * i, 0)


def run(
    camera: Pan | None,
    shown: Callable[[int], tuple[Box, bool]],
    images: int = FRAMES,
    first_s: float = 1.0,
    **config,
) -> list[Track]:
    """The tracks of a target that is selected at ``START``; ``shown``: its box in an image, and whether the
    network sees it there."""

    def script(i, view):
        box, is_seen = shown(i)
        return candidates(box, presence_logit=5.0 if is_seen else -8.0)

    times = [(first_s - 1.0) * FPS + i * PERIOD_S * FPS for i in range(images)]
    given = TrackerConfig(**config), PICTURE, SPEC
    tracks, tracker, _ = followed(script, times, Prompt(box=START), *given, camera=camera)
    tracker.remember()
    return tracks


def follow(camera: Pan, speed: float = 0.0, **config) -> list[Track]:
    """The tracks of a target that is hidden from frame ``GONE_AT`` on."""
    return run(camera, lambda i: (place(i, speed), i < GONE_AT), **config)


def test_a_video_may_begin_at_stamp_0(monkeypatch):
    """What the camera did until its second image is known, too."""
    monkeypatch.setitem(globals(), "PANS_AT", 0)
    later, from_0 = follow(Pan()), follow(Pan(), first_s=0.0)
    assert [t.motion and t.motion.box for t in from_0] == [t.motion and t.motion.box for t in later]
    assert [t.motion and t.motion.velocity for t in from_0] == [t.motion and t.motion.velocity for t in later]


def test_a_hidden_target_is_believed_to_stay_on_the_ground_while_the_camera_pans():
    hidden = follow(Pan())[GONE_AT + 2]
    assert hidden.state is TrackState.COASTING
    assert hidden.box.cx == pytest.approx(place(GONE_AT + 2).cx, abs=4.0)


def test_a_place_that_is_recognised_is_searched_though_the_pan_was_not_seen():
    """The first window of a search is around the expected place, to which the target went on."""
    speed = 8.0

    def expected(camera: Pan) -> float:
        window = follow(camera, speed, view="window", window_factor=5.0)[FRAMES - 1].windows[0]
        return window.x + window.extent[0] / 2

    truth = place(FRAMES - 1, speed).cx
    assert expected(Pan(known=False, recognises=True)) == pytest.approx(truth, abs=START.size / 2)
    assert abs(expected(Pan(known=False)) - truth) > START.size


@pytest.mark.parametrize(
    "camera",
    [None, Pan(known=False), Pan(pans=False, unknown_at=GONE_AT), Pan(pans=False, unknown_at=GONE_AT + 1)],
)
def test_what_appears_far_off_is_taken_sooner_where_the_camera_may_have_jerked(camera):
    """Six sizes off in the next image. A camera that is known to rest tells that it is another thing, unless
    nothing else is found for seconds."""

    def images_until_taken(source: Pan | None) -> int:
        tracks = run(source, lambda i: (START.moved(300 if i >= GONE_AT else 0, 0), True), 200)
        return next(i for i, track in enumerate(tracks[GONE_AT:]) if track.measured)

    jerked, rests = images_until_taken(camera), images_until_taken(Pan(pans=False))
    assert jerked < 30 < 60 < rests


def test_the_kept_image_is_compared_at_most_eleven_times_a_second():
    camera = Pan(recognises=True)
    compared = []
    since = camera.since
    camera.since = lambda kept: compared.append(1) or since(kept)
    follow(camera)
    missed_s = (FRAMES - GONE_AT - 1) * PERIOD_S
    assert 1 <= len(compared) <= 1 + missed_s / 0.09


def test_a_target_that_the_network_has_not_seen_yet_has_no_place_to_recognise():
    tracks = run(Pan(), lambda i: (None, False), 6)
    assert [track.state for track in tracks] == [TrackState.ACQUIRING, *[TrackState.COASTING] * 5]


def test_a_target_that_comes_behind_the_camera_is_lost_and_not_predicted_on_the_other_side():
    """A camera with f = 600 px turns by 10 degrees an image away from a target that is just missed."""
    intrinsics = np.array([[600.0, 0, 640], [0, 600, 360], [0, 0, 1]])
    c, s = np.cos(np.radians(10)), np.sin(np.radians(10))
    turn = rotation_motion(intrinsics, np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]))
    camera = Pan()
    camera.estimate = lambda image, stamp_ns, target: CameraMotion(turn if stamp_ns > 10**9 else np.eye(3))

    tracks = run(camera, lambda i: (START, i == 0), 19, lost_after=10.0)
    coasting = [t for t in tracks[1:] if t.state is TrackState.COASTING]
    assert 5 <= len(coasting) <= 12
    assert [t.box.cx for t in coasting] == sorted(t.box.cx for t in coasting)
    assert all((t.state, t.box) == (TrackState.LOST, None) for t in tracks[1 + len(coasting) :])
    # What is said of one in view is wrong.
    wrong = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-0.005, 0.0, 1.0]])
    camera.estimate = lambda image, stamp_ns, target: CameraMotion(wrong)
    assert all(t.measured for t in run(camera, lambda i: (START, True), 19))


@pytest.mark.parametrize("later", [0, 1, 2])
@pytest.mark.parametrize("recognises", [True, False])
def test_where_the_place_is_recognised_a_target_just_missed_is_accepted_at_once(recognises, later):
    """Hidden as the camera starts to pan, and back three of its sizes away, where the ground is: in an image
    that is compared with the kept one, or some images ``later``."""
    back = PANS_AT + 7 + later

    camera = Pan(known=False, recognises=recognises)
    tracks = run(camera, lambda i: (place(i), not PANS_AT <= i < back), back + 1)
    assert tracks[back - 1].state is TrackState.COASTING
    assert tracks[back].measured == recognises
