"""Video and plot of a simulated flight, from a record in which every line has numbers of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from efftam_ros.core.types import TrackState
from efftam_ros.images.video import open_video
from simulation.pictures import track_of, write_plot, write_video
from simulation.record import Answer, FlightRecord, Sample, Steering

FOLLOWING_S, ENDED_S, FRAME_S = 10.0, 14.0, 0.1
WIDTH, HEIGHT = 320, 180
ANSWER = Answer(
    time_s=0.0,
    stamp_ns=7,
    selection=1,
    state=TrackState.COASTING,
    measured=False,
    valid=True,
    box=(10.0, 20.0, 30.0, 40.0),
    presence=0.25,
    quality=0.75,
    age_s=0.5,
    reason="hidden",
)


def record() -> FlightRecord:
    """A picture and an answer each tenth of a second from 5 s to 16 s; COASTING from 11 s to 12 s, LOST from
    12 s to 13 s."""
    samples, answers = [], []
    for index in range(110):
        time_s = 5.0 + FRAME_S * index
        stamp_ns = round(time_s * 1e9)
        samples.append(
            Sample(
                index=index,
                stamp_ns=stamp_ns,
                time_s=time_s,
                yaw=0.01 * index,
                pitch=-0.002 * index,
                target_yaw=0.01 * index + 0.1,
                target_pitch=-0.002 * index + 0.05,
                off_axis=0.001 * index,
                u=WIDTH / 2,
                v=HEIGHT / 2,
                box=None,
                visible_px=0 if 12.0 <= time_s < 12.5 else 100,
            )
        )
        state = TrackState.TRACKING
        if 10.95 < time_s < 12.95:
            state = TrackState.COASTING if time_s < 11.95 else TrackState.LOST
        answers.append(replace(ANSWER, time_s=time_s, stamp_ns=stamp_ns, state=state))
    events = {"selected": 8.0, "following": FOLLOWING_S, "ended": ENDED_S}
    return FlightRecord(samples, answers, [Steering(9.0, 2, 1, 0.0, 0.0, "")], events)


@pytest.fixture(scope="module")
def drawn():
    """The axes that were drawn; what they hold is read as the numbers that a reader would read off."""
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    from matplotlib.figure import Figure

    kept: list[Figure] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, path, **options: kept.append(figure))
        write_plot(Path("tracks.png"), record())
    return kept[0].axes


def line_of(axis, label: str) -> tuple[np.ndarray, np.ndarray]:
    (line,) = (line for line in axis.get_lines() if line.get_label() == label)
    return line.get_xdata(), line.get_ydata()


@pytest.mark.parametrize(
    ("row", "gimbal_at_start", "target_at_start"), [(0, 0.5, 0.6), (1, -0.1, -0.05)], ids=["yaw", "pitch"]
)
def test_the_plot_shows_gimbal_and_target_in_degrees_since_steering_began(
    drawn, row, gimbal_at_start, target_at_start
):
    for label, expected in (("gimbal", gimbal_at_start), ("target", target_at_start)):
        t, degrees = line_of(drawn[row], label)
        assert (t[0], t[-1]) == pytest.approx((-3.0, ENDED_S - FOLLOWING_S))
        assert np.interp(0.0, t, degrees) == pytest.approx(math.degrees(expected))
    assert drawn[row].get_ylabel().startswith(("yaw", "pitch")[row])


def test_the_plot_shades_the_states_in_which_the_target_is_missed(drawn):
    """Each answer's state holds until the next answer."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    spans = [patch for patch in drawn[2].patches if isinstance(patch, Rectangle)]
    for colour, begin, end in (("khaki", 1.0, 2.0), ("lightcoral", 2.0, 3.0)):
        of_state = [span for span in spans if to_rgb(span.get_facecolor()) == to_rgb(colour)]
        assert min(span.get_x() for span in of_state) == pytest.approx(begin, abs=1e-6)
        assert max(span.get_x() + span.get_width() for span in of_state) == pytest.approx(end, abs=1e-6)


def test_an_answer_is_drawn_with_all_that_it_says():
    track = track_of(ANSWER, (WIDTH, HEIGHT))
    assert (track.stamp_ns, track.state, track.measured) == (7, TrackState.COASTING, False)
    assert track.box.xywh() == (10.0, 20.0, 30.0, 40.0)
    assert (track.presence, track.quality, track.age_s, track.reason) == (0.25, 0.75, 0.5, "hidden")
    assert track.image_size == (WIDTH, HEIGHT)
    never = track_of(replace(ANSWER, box=None, age_s=None), (WIDTH, HEIGHT))
    assert never.box is None
    assert math.isnan(never.age_s)


def test_each_picture_of_the_video_shows_the_newest_answer_that_is_not_younger(tmp_path):
    """Pictures 0 to 9, of which the first is more than a second before the selection; answers to 4 and 7."""
    plain = record()
    samples = [
        replace(plain.samples[0], index=i, time_s=FRAME_S * i, stamp_ns=i * 100_000_000) for i in range(10)
    ]
    answers = [
        replace(
            ANSWER, state=TrackState.TRACKING, measured=True, stamp_ns=stamp_ns, box=(x, 40.0, 60.0, 60.0)
        )
        for stamp_ns, x in ((400_000_000, 20.0), (700_000_000, 220.0))
    ]
    for sample in samples:
        grey = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
        cv2.imwrite(str(tmp_path / f"{sample.index:06d}.jpg"), grey)
    flight = FlightRecord(samples, answers, [], {"selected": 1.05})
    write_video(tmp_path / "flight.mp4", flight, tmp_path, fps=10.0, quiet=True)
    frames = [frame.bgr.astype(int) for frame in open_video(tmp_path / "flight.mp4").frames()]
    assert len(frames) == 9

    def is_drawn(frame, x: int) -> bool:
        """The left edge of the box, away from its label."""
        return bool(np.abs(frame[50:90, x - 2 : x + 3] - 90).max(axis=(1, 2)).min() > 40)

    shown = [(is_drawn(frame, 20), is_drawn(frame, 220)) for frame in frames]
    assert shown == [(False, False)] * 3 + [(True, False)] * 3 + [(False, True)] * 3
