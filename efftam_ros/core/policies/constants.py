"""The constants of the default policy, each with its unit, its meaning, and the data by which it was chosen.

The *size* of a target is the square root of its box's area. *LLR* is the log-likelihood ratio that an object
is the target rather than another object. The *choosing half* is the half of the recorded footage on which
values may be chosen. Results are reported on the other half, the reporting half (docs/tracking.md).
"""

from __future__ import annotations

# Constants that define a target's usual values

USUAL_FRAMES = 60
"""Number of last confirmed frames from which the usual predicted IoU and the usual size are computed."""
REMEMBERED_FRAMES = 30
"""Number of last remembered frames from which the usual area for the LLR is computed."""
UNLIKELY_SIZE = 6.0
"""Additional weight, in the LLR, of a change of area beyond `MAX_AREA_RATIO`."""
MAX_AREA_RATIO = 3.0
"""Largest ratio of areas for which a change has no additional weight (`UNLIKELY_SIZE`)."""

# Constants that decide which candidate of a followed target is accepted, and which frame is remembered

SEEN_SHARE, KEPT_SHARE = 0.4, 0.7
"""Smallest predicted IoU with which a candidate is accepted, and with which its frame is remembered. Both are
shares of the target's usual predicted IoU, because small targets never reach the predicted IoU of large
ones."""
WHOLE_SHARE = 0.5
"""Smallest area of the target's box with which a frame is remembered, as a share of the usual area."""
MOVING_SHARE = 0.75
"""Least area of a box that shows the whole target, as a share of its usual area. The motion of a smaller box
is taken for that of a part."""
GROWN_SHARE, GROWN_CLEARNESS = 1.5, 0.9
"""A mask is assumed to include a neighbour if its area exceeds the first share of the usual area, and its
predicted IoU is below the second share of the usual one. A car that drives up to the camera also grows, but
its predicted IoU does not fall. Without the second limit two of 73 cases of the choosing half are lost; with
both limits no case changes. The rule raises the mean overlap of eleven sequences of OTB-100 and VOT from
0.520 to 0.566."""
STILL_S = 0.25
"""For this time, s, a candidate at the target's last position in the image passes the motion gate, whatever
the camera's motion. A skier who is seen against the sky stays in the image, not over the ground. By this rule
two sequences of OTB-100 are followed that were lost before; none of 41 clips of the choosing half changes."""
STRAY, STRAY_PER_S = 1.25, 1.0
"""Largest distance from the prediction at which a COASTING target may return in one image: the first number,
in target sizes, plus the second, in sizes per second since the target was seen. A view shows about this much
around the target."""
JUMP_PER_S = 8.0
"""Largest distance from the prediction that a jerk of camera or target is assumed to cause, in target sizes
per second since the last image; at most `STRAY`. At 30 Hz the target still overlaps its predicted box. At 10
Hz with lost images the filter's uncertainty is a fifth of a size, but right boxes lie up to one size away."""

# Constants of the confidence in a claim
#
# `training judge fit` fits these numbers to the claims recorded on the choosing half (12,600 claims of 67
# clips, 6 % of them wrong), and reports how well confidence and truth agree on the reporting half.

CLAIM_LOG_ODDS = 4.2
"""Log-odds that a claimed box is right if the target looks in it as usual, and is as large as usual."""
CLAIM_DEFICIT = 9.7
"""By how much the log-odds fall if the likeness is 1 below the usual one."""
CLAIM_AREA = 1.1
"""By how much the log-odds fall if the area is e (2.718) times the usual one, or 1/e of it."""

# Constants by which the mask with the drawn scale is chosen
#
# On 22 sequences of OTB-100, VOT, UAVDT and others the mean overlap is 0.669 with this rule, 0.667 without
# it, and 0.662 if larger targets are compared too.

SCALE_FRAMES = 2
"""Number of frames after the selection whose masks are compared with the drawn box. In so few frames the
target hardly changes its size."""
CLEAR = 0.06
"""The fit of a mask is the IoU of its box with the drawn box, as if both had the same centre. A mask gets a
bonus if its fit exceeds that of the mask with the highest predicted IoU by more than this."""
WEIGHT = 2.0
"""The bonus of a mask is this factor times the part of the difference of the fits that exceeds `CLEAR`. The
bonus is added to the predicted IoU."""
SAME_IOU = 0.1
"""Two candidates of one view are the same object if their IoU is at least this."""

# Constants of the published box, for a network without a box head

MAX_PX = 32.0
"""Only targets whose drawn box has a smaller size, px, are compared with that box."""
BORDER = 0.02
"""Distance from the image's border, as a share of the image's longer side. A target that is closer may be
coming into the image, and so grow."""
EXTENT_FRAMES = 5
"""Number of boxes after the selection that are compared with the drawn one. This value, `SHARE` and `MOST`
were chosen on the choosing half. They raise the overlap with the truth by 0.035 for targets below 32 px (16
cases, none worse). For many larger targets they would lower the overlap. If the box could also be made
smaller, they would lower it for most targets."""
SHARE = 0.7
"""Exponent of the correction. Each side of the box is multiplied by the ratio of the side that the user drew
to the mean side of the first boxes after the selection, to the power of `SHARE`."""
MOST = 2.0
"""Largest factor on a side of the published box."""
CONTINUED = 0.03
"""The fit of a candidate is the IoU of its box with the prompted mask's box, as if both had the same centre.
Another candidate than the followed one is published if its fit is higher by more than this."""
RELATED_FRAMES = 3
"""Number of newest frames from which the relation of the published box to the followed one is computed."""

# Constants of the published box, for a network with a box head

LEVELS = (-1.0, 0.0, 1.0)
"""Levels of the logits at which the network gives the edges of a mask (`Candidates.levels`)."""
MIN_OFFSET, MAX_OFFSET = -0.5, 1.0
"""Limits of the first cue: how far the drawn box's edges lie outside those of the prompted mask, as shares of
the mask's width or height. Negative: inside."""
MAX_WAY = 0.5
"""Limit of the second cue: how far an edge may move towards another level, as a share of the mask's width or
height. Where the logits hardly change, the place of the other level is arbitrary."""

# Constants that decide whether a detection is the returning target

MIN_PRESENCE = 0.2
"""Least presence, as a probability, of a window in which the search accepts detections."""
RETURN_MARGIN = 1.2
"""A target that returns at its expected place is accepted in one image, if its LLR is at most this much below
that of usual confirmed frames. Without this limit, occluders that resemble the target are accepted. On 73
cases of the choosing half, 3 wrong objects are accepted with the limit, and 5 without. 56 frames without the
target are claimed with the limit, and 106 without. In both cases 52 targets are found again."""
LIKENESS = 8.0
"""Weight of `Looks.lead` in the LLR of a missed target. Of 160 misses recorded on the choosing half
(`training judge returns`), the first object accepted is the target in 91 and another object in 2. With a
weight of 6 these counts are 90 and 3, with 12 they are 88 and 2. With fixed limits of the likeness in place
of the lead they were 76 and 7."""

# Constants of the prior of a missed target's position

GROUND_WEIGHT, IMAGE_WEIGHT, FLAT_WEIGHT = 0.6, 0.2, 0.2
"""Weights of the three distributions of the position: the one that stays with the ground, the one that stays
with the image, and the uniform one."""
START_SPREAD, GROUND_SPREAD_PER_S, IMAGE_SPREAD_PER_S = 0.7, 1.2, 2.0
"""Standard deviations of the two normal distributions. The first number is the value of both at the start, in
target sizes. The second number is the growth, in sizes per second, for the distribution that stays with the
ground; the third is the growth for the one that stays with the image. The numbers are the errors of the
motion filter's predictions 1 and 2 s ahead on aerial clips, with the camera's motion and without it."""
FADING_S = 3.0
"""Time constant, s, with which the assumed speed over the ground decreases. At constant speed the prediction
would leave the scene."""

# Constants that decide which windows are searched

TILE, TILE_STEP = 1.2, 0.8
"""Side of a tile, in sides of the window that follows the target; in wider tiles a small target would be too
small. Distance of neighbouring tiles, in sides of a tile; an object that is cut by one tile is whole in the
next."""
MAX_TILES = 64
"""Largest number of tiles along each side of the image. It limits the search for a tiny target in a huge
image."""
RESIZED = 0.3
"""If the side of the window that follows the target changes by more than this share, the image is divided
into tiles anew."""
VIEW_LLR = -1.0
"""Least LLR of a candidate track that is looked at again, wherever it is."""
RIVAL_WINDOWS = 1
"""Number of windows per image for the candidate tracks after the best one. The best one needs no window,
because the look that follows the search shows it."""
RECOGNITION_NS = 90_000_000
"""Least time between two comparisons of an image with the kept one, ns. A comparison takes 20 to 30 ms on a
CPU."""
RECOGNISED_NS = 150_000_000
"""Time for which a recognised place is used, ns."""

# Constants of the candidate tracks of a missed target

MATCH_IOU, MATCH_SIZES = 0.15, 0.8
"""A detection belongs to a candidate track if its IoU with the track's predicted box exceeds the first
number, or if the distance of their centres, in sizes, is below the second."""
INNER_SHARE = 0.8
"""A candidate track is expected to be detected if its centre lies in this inner part of a window, as a share
of the window's side."""
MISS_LLR = -1.5
"""LLR of a view in which a candidate track should be visible and is not detected."""
LLR_KEPT = 0.65
"""Factor on the LLR of a candidate track at each further image, because detections of one object are not
independent. On detections recorded in 49 cases of the choosing half two wrong objects are accepted with this
value, three with 0.7, and four with 1."""
MIN_LLR = -2.0
"""Least LLR of a candidate track, so that an object seen earlier at a place does not exclude the target
there."""
FORGET_S = 1.5
"""Time without a detection, s, after which a candidate track is dropped."""
IN_SIGHT_S = 6.0
"""Time constant, s, with which the prior of an object in sight changes from the prior at the time when the
object came into sight to the present one."""
MAX_TRACKS = 12
"""Largest number of candidate tracks that are kept."""
ACCEPT_SCORE = 1.0
"""Least score of a candidate track that is accepted as the target. Of 160 misses recorded on the choosing
half, the first object accepted is the target in 91 and another object in 2. With a score of 1.5 these counts
are 82 and 3, with 2 they are 79 and 0."""
MIN_GOOD = 2
"""Least number of consecutive images, up to the last one, in which an accepted track was detected with a
positive LLR."""
MARGIN = 3.0
"""Least lead of an accepted track's score over that of every other track. With a lead of 1, the first object
accepted in the 160 misses is the target in 91, and another object in 3."""
