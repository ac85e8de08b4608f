"""The constants of the default policy: one table of values, units, meanings, and what chose them.

*Size*: the square root of a box's area. *LLR*: log-likelihood ratio that something is the target rather than
something else. *Choosing half*: the half of the recorded footage on which values may be chosen; results are
reported on the other half (docs/tracking.md).
"""

from __future__ import annotations

# What is usual for a target

USUAL_FRAMES = 60
"""Last confirmed frames whose predicted IoU and size are the usual ones."""
REMEMBERED_FRAMES = 30
"""Last remembered frames whose area is the usual one."""
UNLIKELY_SIZE = 6.0
"""Factor on a change of area beyond `MAX_AREA_RATIO`, in LLR."""
MAX_AREA_RATIO = 3.0
"""Ratio of areas up to which a change counts simply."""

# Which candidate of a followed target is accepted and remembered

SEEN_SHARE, KEPT_SHARE = 0.4, 0.7
"""Least predicted IoU as a share of the target's usual one: to be accepted, and to be remembered. A share,
because small targets never reach the predicted IoU of large ones."""
WHOLE_SHARE = 0.5
"""Least share of the usual area to be remembered."""
MOVING_SHARE = 0.75
"""Least share of the usual area for the box to show the motion of the whole target."""
GROWN_SHARE, GROWN_CLEARNESS = 1.5, 0.9
"""Share of its usual area above which, and share of its usual predicted IoU below which, a mask is assumed to
include a neighbour. A car that drives up to the camera grows as fast, but is seen as clearly as before:
without the second limit two of 73 cases of the choosing half are lost, with it none changes. The mean overlap
of eleven sequences of OTB-100 and VOT rises from 0.520 to 0.566."""
STILL_S = 0.25
"""Time, s, within which a candidate at the target's last position in the image is accepted, whatever the
camera's motion: the motion over the ground does not help for a skier against the sky. With it two sequences
of OTB-100 are followed that were lost; none of 41 clips of the choosing half changes."""
STRAY, STRAY_PER_S = 1.25, 1.0
"""How far from the prediction a target may return at once, in its sizes, and in sizes per second since it was
seen. From the context that the view shows."""
JUMP_PER_S = 8.0
"""How far from the prediction a jerk of the camera or target may take it, in sizes per second since the last
image, at most `STRAY`. At 30 Hz the predicted box overlaps it all the same; at 10 Hz with images lost the
filter's uncertainty is a fifth of a size, and right boxes lie up to one size off."""
UNLIKE = 5.0
"""Weight of the deficit of likeness of a followed target, in LLR."""

# The confidence in a claim
#
# `training judge fit` fits these numbers to the claims recorded on the choosing half (12,600 claims of 67
# clips, 6 % of them wrong), and reports how well confidence and truth agree on the reporting half.

CLAIM_LOG_ODDS = 4.2
"""Log-odds that a claim is right if it looks as usual and is as large as usual."""
CLAIM_DEFICIT = 9.7
"""By how much the log-odds fall if the likeness is 1 below the usual one."""
CLAIM_AREA = 1.1
"""By how much the log-odds fall if the area is e times the usual one, or 1/e of it."""

# The end of followed points
#
# When an object slides in front of the target, or the mask jumps to a neighbour, nearly all points followed
# on the target end within a few images; when the target turns or is blurred, they seldom do. Of 154
# occlusions of the choosing half the same 120 targets are found again and 6 wrong objects accepted with this
# rule and without, but 68 of the absent frames are claimed in place of 162.

MIN_POINTS = 6
"""Fewest points whose end is evidence."""
MAX_FOUND_SHARE = 0.15
"""Largest share of the points that may still be in the candidate's box."""
DOUBTED_FRAMES = 6
"""Frames that need evidence afterwards: until new points have been followed long enough."""
SURE_PRESENCE = 3.0
"""Presence logit (probability 0.95) above which the end of its points does not end an unbroken track."""

# Which of the three masks has the drawn scale
#
# On 22 sequences of OTB-100, VOT, UAVDT and others the mean overlap is 0.667 without this rule, 0.669 with it
# and 0.662 where larger targets are compared too; on six aerial sequences, by which it was not chosen, 0.637
# without it.

SCALE_FRAMES = 2
"""First followed frames that are compared: the target has hardly changed its size yet."""
CLEAR = 0.06
"""By how much a fit must exceed that of the mask with the highest predicted IoU."""
WEIGHT = 2.0
"""Weight of the excess, in predicted IoU."""
SAME_IOU = 0.1
"""IoU of two candidates from which they are the same object."""

# The published box of a network without a box head

MAX_PX = 32.0
"""Size of a drawn box, px, up to which boxes are compared with it."""
BORDER = 0.02
"""Share of the image's longer side: a target this close to the border may be entering, and grow."""
EXTENT_FRAMES = 5
"""Number of boxes after the selection that are compared with the drawn one. Chosen, as the next two, on the
choosing half: the overlap of targets below 32 px with the truth rises by 0.035 (16 cases, none worse); it
falls for many larger targets, and for most if the box may also shrink."""
SHARE = 0.7
"""Exponent of the ratio of the drawn box to the compared ones."""
MOST = 2.0
"""Largest factor of a side."""
CONTINUED = 0.03
"""By how much a fit must exceed the chosen mask's to be published."""
RELATED_FRAMES = 3
"""Newest frames by which the published box is placed relative to the followed one."""

# The published box of a network with a box head

LEVELS = (-1.0, 0.0, 1.0)
"""Of the logits; the boxes there are `Candidates.levels`."""
MIN_OFFSET, MAX_OFFSET = -0.5, 1.0
"""Limits of how far the drawn box's edges lie outwards of the prompted mask's, in its sizes."""
MAX_WAY = 0.5
"""Limit of an edge's way to another level, in the mask's sizes: where the logits hardly change, that level
may be crossed anywhere."""

# Whether what is seen is the returning target

MIN_PRESENCE = 0.2
"""Least presence (probability) of a detection."""
RETURN_MARGIN = 1.2
"""Most by which the LLR of a target that returns where it is expected may be below the usual one of confirmed
frames, to be accepted in one image; without this limit occluders that resemble the target are accepted. On 73
cases of the choosing half 5 wrong objects are accepted and 106 absent frames claimed without it, 3 and 56
with it; 52 targets are regained in both."""
LIKENESS = 8.0
"""Weight of `Looks.lead` of a missed target, in LLR. Of 160 misses recorded on the choosing half (`training
judge returns`), the target is the first thing accepted in 91 and something else in 2; with a weight of 6 in
90 and 3, with 12 in 88 and 2. With fixed limits of likeness, and what is missing of the usual one weighed
alone, it was 76 and 7."""

# Where a missed target may be

GROUND_WEIGHT, IMAGE_WEIGHT, FLAT_WEIGHT = 0.6, 0.2, 0.2
"""Weights of the three distributions: that stays with the ground, that stays with the image, and uniform."""
START_SPREAD, GROUND_SPREAD_PER_S, IMAGE_SPREAD_PER_S = 0.7, 1.2, 2.0
"""Standard deviation in target sizes, at the start and its growth per second: the errors of the motion
filter's predictions 1 and 2 s ahead on aerial clips, with the ground's motion and without it."""
FADING_S = 3.0
"""Time constant, s, of the speed over the ground: at constant speed the prediction would leave the scene."""

# Which windows are searched

TILE, TILE_STEP = 1.2, 0.8
"""Side of a tile, in sides of the window that follows the target: a small target is too small in wider ones.
How far apart neighbouring tiles are, in their sides: an object cut by one is whole in the next."""
MAX_TILES = 64
"""Most tiles along each side of the image, for a tiny target in a huge image."""
RESIZED = 0.3
"""Share by which the window's side may change until the image is divided anew."""
VIEW_LLR = -1.0
"""Least LLR of a track that gets another view, wherever it is."""
RIVAL_WINDOWS = 1
"""Windows for the tracks after the best one, which the frame's own view shows."""
RECOGNITION_NS = 90_000_000
"""Least time between two comparisons with the kept image, ns. One takes 20 to 30 ms on a CPU."""
RECOGNISED_NS = 150_000_000
"""How long a recognised place counts, ns."""

# Candidate tracks of a missed target

MATCH_IOU, MATCH_SIZES = 0.15, 0.8
"""A detection belongs to a track when its IoU with the predicted box is above the first, or the distance of
their centres, in sizes, below the second."""
INNER_SHARE = 0.8
"""Inner part of a window in which a track should be visible."""
MISS_LLR = -1.5
"""LLR of a view in which a track that should be visible is not."""
LLR_KEPT = 0.65
"""Factor on the LLR at each further image, because detections of one object are not independent. On
detections recorded in 49 cases of the choosing half it accepts two wrong objects, 0.7 three, 1 four."""
MIN_LLR = -2.0
"""Lower bound, so that an earlier object at a place does not exclude the target there."""
FORGET_S = 1.5
"""Time without a detection, s, after which a track is dropped."""
IN_SIGHT_S = 6.0
"""Time constant, s, within which an object in sight comes to be weighed by the present prior in place of the
one that held when it came into sight."""
MAX_TRACKS = 12
"""Most tracks that are kept."""
ACCEPT_SCORE = 1.0
"""Least score of a track that is accepted as the target. Of 160 misses recorded on the choosing half, the
target is the first thing accepted in 91 and something else in 2; with a score of 1.5 in 82 and 3, with 2 in
79 and 0."""
MIN_GOOD = 2
"""Least number of last images in a row in which that track was detected well."""
MARGIN = 3.0
"""Least lead of its score over that of every other track. With 1, the choosing half gives 91 and 3."""
