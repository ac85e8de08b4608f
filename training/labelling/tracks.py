"""Follows proposed objects and keeps those that are followed safely.

Two trackers go forward together and, from where they last agreed, backward; where all four agree a mask is
made of the mean box, and kept if it fits. No frame is marked as one without the target: nothing here is
certain enough for that. What passes is easy (no occlusion, no jerk). From true boxes 0.9 % of the masks'
boxes had an overlap below 0.5 with the truth (214 frames of 16 sequences); of what motion proposes one track
in ten is no object (see surroundings.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box, iou
from training.labelling.followers import Follower
from training.labelling.proposals import SURE, Proposal, bounds
from training.labelling.segmenter import Frame, Mask, Segmenter
from training.labelling.surroundings import goes_along, ring_likeness

EVERY, DENSE = 3, 2  # frames from one label to the next: five a second; more where a track is short
AGREE = 0.5  # overlap of the trackers' boxes, and of the ways forward and back, frame by frame
SCORE = 0.45  # of a tracker that knows how sure it is
CYCLE = 0.6  # overlap with the start when back there, and median overlap of both ways
SHORTER = 0.6  # of the way, tried when the whole is not followed back
WAY = 0.3  # target sizes that the target moves at least, or the logarithm by which its size changes
CLEARLY_LESS = 0.8  # of `WAY`, forward alone: such a target is not followed back
FIT = 0.6  # overlap of a mask's box with the box that it was made of
AREA = 2.0  # factor by which a mask's area differs at most from the running mean
LIKE = 0.45  # likeness of colours to the start's, 0..1
LABELS, KEPT = 6, 0.6  # least number of labels of a track; share of those tried that fit
SAME = 0.5  # share of the smaller mask, in the median, at which two tracks are one
TOGETHER = 0.8  # share of their frames that tracks of one clip have in common


@dataclass(frozen=True)
class Track:
    """Masks of an object by frame of the segment, and how it was found and passed."""

    masks: dict[int, Mask]
    figures: dict[str, float | str]


@dataclass(frozen=True)
class _Way:
    """Where the trackers saw an object: frames of the segment, and the box in each of them."""

    proposal: Proposal
    frames: list[int]
    boxes: list[Box]
    figures: dict[str, float | str]


def find_tracks(
    segmenter: Segmenter,
    followers: tuple[Follower, Follower],
    frames: Sequence[Frame],
    proposals: Sequence[Proposal],
    fates: Counter[str],
) -> list[Track]:
    """Tracks of a segment, no two of one object, the longest first. ``fates`` counts what became of the
    proposals: kept, lost, still, unfit, along (with its surroundings) or double."""
    ways = [way for one in proposals if (way := _followed(followers, frames, one, fates)) is not None]
    # All masks of a segment share the encoded images.
    items = [(frames[i], box) for way in ways for i, box in zip(way.frames[1:], way.boxes[1:], strict=True)]
    outlines = iter(segmenter.outline(items))
    found = []
    for way in ways:
        masks, area = {0: way.proposal.mask}, float(way.proposal.mask.sum())
        start = colours(frames[0], way.proposal.mask)
        for i, box in zip(way.frames[1:], way.boxes[1:], strict=True):
            outline = next(outlines)
            size, tight = float(outline.mask.sum()), bounds(outline.mask)
            fits = outline.quality > SURE and iou(tight, box) > FIT and 1 / AREA < size / area < AREA
            if fits and float((colours(frames[i], outline.mask) * start).sum()) > LIKE:
                masks[i], area = outline.mask, (area + size) / 2
        if len(masks) < max(LABELS, KEPT * len(way.frames)):
            fates["unfit"] += 1
            continue
        outlined = list(masks.values())
        ring = ring_likeness([frames[i] for i in masks], outlined, [bounds(mask) for mask in outlined])
        if goes_along(way.proposal.apart, ring):
            fates["along"] += 1
            continue
        kept = len(masks) / len(way.frames)
        found.append(Track(masks, {**way.figures, "kept": kept, "apart": way.proposal.apart, "ring": ring}))
    unique: list[Track] = []
    for track in sorted(found, key=lambda one: -len(one.masks)):
        is_new = not any(_is_same(track, other) for other in unique)
        fates["kept" if is_new else "double"] += 1
        if is_new:
            unique.append(track)
    return unique


def clips_of(tracks: Sequence[Track]) -> Iterator[tuple[list[int], list[Track]]]:
    """Tracks that share most of their frames, as one clip: the frames that all have, and the tracks."""
    left = list(tracks)
    while left:
        group, common = [left[0]], set(left[0].masks)
        rest: list[Track] = []
        for track in left[1:]:
            shared = common & set(track.masks)
            joins = len(shared) >= max(LABELS, TOGETHER * max(len(common), len(track.masks)))
            common = shared if joins else common
            (group if joins else rest).append(track)
        yield sorted(common), group
        left = rest


def colours(frame: Frame, mask: Mask) -> NDArray[np.float64]:
    """Square roots of the shares of the colours inside a mask; the product of two is their likeness, 0..1."""
    lab = cv2.cvtColor(frame, cv2.COLOR_BGR2LAB)
    counts = cv2.calcHist([lab], [0, 1, 2], mask.astype(np.uint8), [6, 8, 8], [0, 256] * 3)
    return np.asarray(np.sqrt(counts / max(float(counts.sum()), 1.0)), np.float64)


def _followed(
    followers: tuple[Follower, Follower], frames: Sequence[Frame], proposal: Proposal, fates: Counter[str]
) -> _Way | None:
    forth = _forward(followers, frames, proposal.box)
    for stop in (len(forth), int(len(forth) * SHORTER)):
        if stop < DENSE * LABELS:
            break
        part = forth[:stop]
        ahead = [_mean(a, b) for a, b, _ in part]
        if _way(ahead) < CLEARLY_LESS * WAY:
            fates["still"] += 1
            return None
        back = _backward(followers, frames[:stop], ahead[-1])
        same = [iou(one, other) for one, other in zip(ahead, back, strict=True)]
        if iou(back[0], proposal.box) <= CYCLE or float(np.median(same)) <= CYCLE:
            continue
        step = EVERY if stop >= EVERY * LABELS else DENSE
        sure = [i for i in range(0, stop, step) if same[i] > AGREE and not part[i][2]]
        boxes = [_mean(ahead[i], back[i]) for i in sure]
        if len(sure) < LABELS or sure[0] != 0:
            break
        if _way(boxes) < WAY:
            fates["still"] += 1
            return None
        figures: dict[str, float | str] = {
            "kind": proposal.kind,
            "cycle": iou(back[0], proposal.box),
            "same": float(np.median(same)),
            "way": _way(boxes),
        }
        return _Way(proposal, sure, boxes, figures)
    fates["lost"] += 1
    return None


def _forward(
    followers: tuple[Follower, Follower], frames: Sequence[Frame], box: Box
) -> list[tuple[Box, Box, bool]]:
    """Both trackers' boxes and whether they are in doubt there, up to where they are so twice in a row."""
    for follower in followers:
        follower.start(frames[0], box)
    found = [(box, box, False)]
    for frame in frames[1:]:
        one, other = (follower.update(frame) for follower in followers)
        in_doubt = iou(one, other) < AGREE or min(follower.score for follower in followers) < SCORE
        if in_doubt and found[-1][2]:
            return found[:-1]
        found.append((one, other, in_doubt))
    return found[:-1] if found[-1][2] else found


def _backward(followers: tuple[Follower, Follower], frames: Sequence[Frame], box: Box) -> list[Box]:
    """The mean of both trackers' boxes, followed from the last frame back; in the order of the frames."""
    for follower in followers:
        follower.start(frames[-1], box)
    found = [box]
    for frame in reversed(frames[:-1]):
        one, other = (follower.update(frame) for follower in followers)
        found.append(_mean(one, other))
    return found[::-1]


def _mean(one: Box, other: Box) -> Box:
    a, b = one.xywh(), other.xywh()
    return Box(*((p + q) / 2 for p, q in zip(a, b, strict=True)))


def _way(boxes: Sequence[Box]) -> float:
    """How far the target goes from its start, in its sizes, or the logarithm by which its size changes."""
    first = boxes[0]
    size = float(np.sqrt(first.width * first.height))
    ways = [float(np.hypot(box.cx - first.cx, box.cy - first.cy)) / size for box in boxes]
    growths = [abs(float(np.log(np.sqrt(box.width * box.height) / size))) for box in boxes]
    return max(*ways, *growths)


def _is_same(one: Track, other: Track) -> bool:
    shares = [
        float((mask & other.masks[i]).sum() / max(min(int(mask.sum()), int(other.masks[i].sum())), 1))
        for i, mask in one.masks.items()
        if i in other.masks
    ]
    return bool(shares) and float(np.median(shares)) >= SAME
