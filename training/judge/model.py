"""The judge: the calibrated probability that what is seen is the target.

One candidate is weighed by its `Evidence`: what the network says of it, what the identity network says of it
compared with the target and with its surroundings, and how it fits the motion. Logistic models of a few
numbers, fitted on recorded candidates with truth (`training judge`), turn the evidence into log-odds:

- ``seen``: of a candidate by itself, wherever it is,
- ``followed``: of the candidate that continues an unbroken track,
- ``track``: of a candidate track of the search, whose detections have been added up
(`search.CandidateTrack`).

The numbers are in judge.json, made by `training judge fit`. The tracker does not use them yet: see
experiments/2026-11-28-one-judge.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError

TABLE = Path(__file__).with_name("judge.json")
FORMAT = 1
UNKNOWN = math.nan

# Limits of what is weighed: beyond them more of it says nothing more.
PRESENCE_LOGITS, SIZE_RATIO, CLEARNESS, LIKENESS = 6.0, 1.5, 1.2, 1.0
EVIDENCE, TRACK_EVIDENCE, LEAD = 6.0, 8.0, 4.0
FOUND_EVIDENCE = 2.0  # most that counts for what has just been found: the next images decide
# What is usual: about here the products change their sign, so that their weights mean something alone.
USUAL_LIKENESS, USUAL_AROUND, USUAL_PX, USUAL_CONTINUITY = 0.6, 0.45, 32.0, 0.8

LOOKS = ("likeness", "below_usual", "above_around", "likeness_size", "around", "spread", "unlike_scene")
"""Features that need the identity network; 0 where it says nothing."""
SEEN = (
    "absence",
    "presence",
    "clearness",
    "smaller",
    "larger",
    "size",
    "is_cut",
    "is_mute",
    "mute_absence",
    "mute_size",
)
FEATURES: Mapping[str, tuple[str, ...]] = {
    "seen": (*SEEN, *LOOKS, "rival"),
    "followed": ("evidence", "absence", "overlap", "points", "continuity", "smaller", "larger"),
    "track": ("evidence", "place", "lead"),
}


@dataclass(frozen=True)
class Known:
    """What is known of the target, against which a candidate is weighed. NaN: not known.

    ``quality``: its usual predicted IoU; ``size``: its expected size, sqrt(area) px; ``likeness``,
    ``spread``:
    its usual likeness over looks at it that were followed without interruption, and their standard deviation;
    ``around``: the likeness that 95 % of what is beside it stay below.
    """

    quality: float = UNKNOWN
    size: float = UNKNOWN
    likeness: float = UNKNOWN
    spread: float = UNKNOWN
    around: float = UNKNOWN


@dataclass(frozen=True)
class Evidence:
    """What is seen of a candidate. NaN: not known.

    ``quality``: predicted IoU; ``size``: sqrt(area) px; ``likeness``: cosine with the target's looks;
    ``is_cut``: it touches the image's edge; ``overlap``: IoU with the predicted box; ``points``: share of the
    points followed on the target that lie in it; ``continuity``: cosine with the look before; ``rival``: the
    highest likeness of another object in the same image.
    """

    presence_logit: float
    quality: float
    size: float
    likeness: float = UNKNOWN
    is_cut: bool = False
    overlap: float = UNKNOWN
    points: float = UNKNOWN
    continuity: float = UNKNOWN
    rival: float = UNKNOWN


def features(kind: str, seen: Evidence, known: Known, evidence: float = 0.0) -> NDArray[np.float64]:
    """The numbers that are weighed, float64, in the order of `FEATURES` [kind]; 0 stands for "not known".
    ``evidence``: the log-odds of the model ``seen``."""
    logit = _limited(seen.presence_logit, PRESENCE_LOGITS)
    ratio = _limited(
        math.log(max(seen.size, 1.0) / _or(max(known.size, 1.0), max(seen.size, 1.0))), SIZE_RATIO
    )
    size = math.log(max(seen.size, 4.0) / USUAL_PX)
    above = seen.likeness - USUAL_LIKENESS
    below_usual, above_around = seen.likeness - known.likeness, seen.likeness - known.around
    around = known.around - USUAL_AROUND
    numbers = {
        "absence": min(logit, 0.0) / 3,
        "presence": max(logit, 0.0) / 3,
        "clearness": _known(min(seen.quality / max(_or(known.quality, seen.quality), 0.1), CLEARNESS) - 1.0),
        "smaller": max(-ratio, 0.0),
        "larger": max(ratio, 0.0),
        "size": size,
        "is_cut": float(seen.is_cut),
        "is_mute": float(math.isnan(seen.likeness)),
        "mute_absence": min(logit, 0.0) / 3 * math.isnan(seen.likeness),
        "mute_size": abs(ratio) * math.isnan(seen.likeness),
        "likeness": _known(above),
        "below_usual": _limited(_known(below_usual), LIKENESS),
        "above_around": _limited(_known(above_around), LIKENESS),
        "likeness_size": _known(above) * size,
        "around": _known(around),
        "spread": _known(known.spread),
        "unlike_scene": _known(above * around) * 4,
        "evidence": _limited(evidence, EVIDENCE),
        "overlap": _known(seen.overlap),
        "points": _known(1.0 - seen.points),
        "continuity": _known(seen.continuity - USUAL_CONTINUITY),
        "rival": max(_known(seen.rival - seen.likeness), -LIKENESS),
    }
    return np.array([numbers[name] for name in FEATURES[kind]])


class Place(NamedTuple):
    """A candidate track. ``evidence``: sum of its detections' log-odds, which decays; ``place``:
    log-density of its position relative to the likeliest one, at most 0."""

    evidence: float
    place: float


def track_features(tracks: Sequence[Place]) -> list[NDArray[np.float64]]:
    """The numbers that are weighed of each of these candidate tracks, float64, in the order of `FEATURES`
    ["track"]."""
    sums, found = [one.evidence + one.place for one in tracks], []
    for index, track in enumerate(tracks):
        lead = sums[index] - max(
            [0.0, *(one for at, one in enumerate(sums) if at != index)]
        )  # or nothing seen
        evidence, place = _limited(track.evidence, TRACK_EVIDENCE), max(track.place, -TRACK_EVIDENCE)
        found.append(np.array([evidence, place, _limited(lead, LEAD)]))
    return found


@dataclass(frozen=True, eq=False)
class Model:
    """A logistic model. ``weights``: float64 [n] of its features; ``offset``: log-odds where all are 0."""

    names: tuple[str, ...]
    weights: NDArray[np.float64]
    offset: float

    def log_odds(self, numbers: NDArray[np.float64]) -> float:
        return float(self.weights @ numbers) + self.offset


@dataclass(frozen=True, eq=False)
class Judge:
    """The models that ship. ``hold_s``: time constant of the mean over a followed target's log-odds by
    ``seen``."""

    seen: Model
    followed: Model
    track: Model
    hold_s: float

    def of_candidate(self, seen: Evidence, known: Known) -> float:
        """Log-likelihood ratio that a candidate is the target, by what is seen in this image alone."""
        return self.seen.log_odds(features("seen", seen, known))

    def of_followed(self, evidence: float, seen: Evidence, known: Known) -> float:
        """Probability that the candidate which continues the track is the target. ``evidence``: its
        `continued` log-odds."""
        return probability(self.followed.log_odds(features("followed", seen, known, evidence)))

    def of_tracks(self, tracks: Sequence[Place]) -> list[float]:
        """Probability of each of these candidate tracks that it is the target. They share it: beside
        another one that is as likely, none has more than one half."""
        odds = [self.track.log_odds(numbers) for numbers in track_features(tracks)]
        found = []
        for index, own in enumerate(odds):
            others = [one for number, one in enumerate(odds) if number != index]
            rivals = sum(math.exp(_limited(one - own, 30.0)) for one in others)
            found.append(min(probability(own), 1.0 / (1.0 + rivals)))
        return found

    def continued(self, before: float | None, now: float, dt_s: float) -> float:
        """Mean log-odds of a followed candidate by `of_candidate`, given that up to the image ``dt_s``
        before (None: it was not followed) and this image's alone."""
        now = _limited(now, EVIDENCE)
        if before is None:
            return now
        kept = math.exp(-max(dt_s, 0.0) / self.hold_s)
        return kept * before + (1 - kept) * now

    def held(self, confidence: float) -> float:
        """The mean log-odds of a target that is followed from now on, and was found with this probability."""
        confidence = min(max(confidence, 0.001), 0.999)
        odds = math.log(confidence / (1 - confidence)) - self.followed.offset
        return _limited(odds / max(float(self.followed.weights[0]), 0.1), FOUND_EVIDENCE)


def read_judge(path: Path = TABLE) -> Judge:
    """Raises InputError when the file is not a table of this format."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise InputError(f"{path} has format {content['format']}, this version reads {FORMAT}")
        seen, followed, track = (_model(kind, content[kind]) for kind in ("seen", "followed", "track"))
        return Judge(seen, followed, track, float(content["hold_s"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not the table of the judge ({error}); make it with `training judge fit`"
        ) from None


def _model(kind: str, table: Mapping[str, object]) -> Model:
    names = tuple(FEATURES[kind])
    weights = table["weights"]
    if not isinstance(weights, dict) or set(weights) != set(names):
        raise ValueError(f"the weights of {kind} are not those of {', '.join(names)}")
    return Model(names, np.array([float(weights[name]) for name in names]), float(str(table["offset"])))


def probability(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-_limited(log_odds, 60.0)))


def _limited(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value
