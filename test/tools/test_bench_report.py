"""The tables and the plot of `efftam bench`: each figure stands in the column that names it."""

from __future__ import annotations

import re

import pytest

from efftam_ros.tools.bench.frames import Timing
from efftam_ros.tools.bench.report import plot, print_motion, print_node, print_python, print_soak


def table(out: str) -> tuple[str, list[str], list[list[str]]]:
    """Title, heads and rows of a printed table."""
    title, heads, *rows = (line for line in out.splitlines() if re.search(r"\w", line))
    return title, *([re.split(r"\s{2,}", line.strip()) for line in lines] for lines in ([heads], rows))


def test_velocity_errors_at_half_a_second_and_after(capsys):
    known = {"speed_px_s": 184.0, "fps": 30.0, "runs": 40}
    print_motion(
        [
            {"dropped": 0.0, "error_at_half_second": 0.011, "error_after": 0.022, **known},
            {"dropped": 0.3, "error_at_half_second": 0.033, "error_after": 0.044, **known},
        ]
    )
    title, heads, rows = table(capsys.readouterr().out)
    assert "184 px/s at 30 fps" in title
    assert "40 runs" in title
    assert heads == [["frames dropped", "at 0.5 s", "0.5 s to 3 s", "goal"]]
    assert rows == [["0 %", "1.1 %", "2.2 %", "at most 5 %"], ["30 %", "3.3 %", "4.4 %", "at most 5 %"]]


def test_the_nodes_latency_beside_its_goal_and_the_images_lost(capsys):
    print_node(
        {
            "answered": 77,
            "width": 1280,
            "height": 720,
            "fps": 30.0,
            "p50_ms": 1.5,
            "p99_ms": 2.5,
            "lost": "3%",
        }
    )
    title, heads, rows = table(capsys.readouterr().out)
    assert "77 images of 1280x720 bgr8 at 30 Hz" in title
    assert dict(zip(heads[0], rows[0], strict=True)) == {
        "callback to bbox, ms: p50": "1.50",
        "p99": "2.50",
        "goal": "median under 5",
        "images lost on the way": "3%",
    }


def test_the_steps_python_without_and_with_camera_motion(capsys):
    print_python({"image": [320, 192], "frames": 3, "off": 0.5, "auto": 0.75})
    title, _, rows = table(capsys.readouterr().out)
    assert "3 frames of 320x192" in title
    assert rows == [
        ["without camera motion", "0.500"],
        ["with camera motion from the images", "0.750"],
    ]


SOAK = {
    "frames": 400,
    "start_mb": 100.0,
    "end_mb": 103.0,
    "growth_mb": 3.0,
    "first_ms": 20.0,
    "last_ms": 21.0,
    "drift": 0.05,
    "device_growth_mb": None,
}


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({}, []),
        (
            {"device_start_mb": 50.0, "device_end_mb": 49.0, "device_growth_mb": -1.0},
            [["device memory in use, MB", "50.00", "49.00", "-1.0", "under 5"]],
        ),
    ],
)
def test_a_long_run_s_memory_and_frame_time(capsys, device, expected):
    print_soak("null", SOAK | device)
    title, heads, rows = table(capsys.readouterr().out)
    assert title.startswith("null: 400 frames")
    assert heads == [["first", "last", "change", "goal"]]
    assert rows == [
        ["resident memory, MB", "100.00", "103.00", "+3.0", "under 5"],
        *expected,
        ["frame time, ms", "20.00", "21.00", "+5.0 %", "none"],
    ]


def test_the_bars_of_the_plot_are_the_stages_end_to_end_and_the_rest_of_the_frame(tmp_path):
    figures = pytest.importorskip("matplotlib.figure", reason="needs matplotlib")
    timings = []
    for name, factor in (("net a", 1.0), ("net b", 2.0)):
        timing = Timing(name, name, "onnxruntime-cpu")
        timing.whole = [0.020 * factor] * 3
        timing.stages |= {"image_encoder": [0.008 * factor] * 3, "mask_decoder": [0.003 * factor] * 3}
        timings.append(timing)
    kept = []

    def save(figure, path, **options):
        kept.append(figure)
        path.touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures.Figure, "savefig", save)
        plot(tmp_path / "bars.png", timings)
    (axes,) = kept[0].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["net a", "net b"]
    bars = {
        bar.get_label(): [(patch.get_x(), patch.get_width()) for patch in bar.patches]
        for bar in axes.containers
    }
    assert list(bars) == ["image_encoder", "mask_decoder", "the rest"]
    assert bars["image_encoder"] == [pytest.approx((0.0, 8.0)), pytest.approx((0.0, 16.0))]
    assert bars["mask_decoder"] == [pytest.approx((8.0, 3.0)), pytest.approx((16.0, 6.0))]
    assert bars["the rest"] == [pytest.approx((11.0, 9.0)), pytest.approx((22.0, 18.0))]
