"""What the page is told of where a lost target was: of its own selection alone."""

from __future__ import annotations

import json

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.messages.reports import BoxReport
from efftam_ros.operator.pairing import MOTION_WAIT_S, Tracks

LAST = Box(10.0, 20.0, 30.0, 40.0)


def test_the_box_of_an_earlier_selection_is_not_where_this_target_was_last():
    tracks = Tracks()

    def told(stamp_ns: int, selection: int, box: Box | None) -> object:
        state = TrackState.LOST if box is None else TrackState.TRACKING
        report = BoxReport(stamp_ns, (640, 480), state, selection=selection, box=box)
        tracks.add_box(report, stamp_ns)
        ((_, text),) = tracks.finished(stamp_ns + MOTION_WAIT_S, 0.0)
        return json.loads(text)["targets"][0]["last"]

    assert told(1, 1, LAST) is None  # it is seen
    assert told(2, 1, None) == list(LAST.xywh())
    assert told(3, 2, None) is None
