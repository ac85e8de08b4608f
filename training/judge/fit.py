"""Fit the judge's table on recordings: training/judge/judge.json.

Fitted on the choosing half; each figure is of footage that was left out in turn, or of the reporting half.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.tools.common.terminal import Cell, print_table
from training.judge.logistic import area, calibration_error, evened, fit, found, left_out, reliability
from training.judge.model import FEATURES, FORMAT, LOOKS, TABLE, Judge, Model
from training.judge.replay import FOLLOWED, Asked, Recording, ask, read_recordings

# What may only speak for the target, and what only against it; the others may have any sign.
SPEAKS_FOR = (
    "absence", "mute_absence", "presence", "clearness", "likeness", "below_usual", "above_around",
    "likeness_size", "overlap",
    "continuity", "evidence", "place", "lead",
)  # fmt: skip
SPEAKS_AGAINST = ("smaller", "larger", "mute_size", "unlike_scene", "points", "rival")
HOLDS_S = (0.05, 0.1, 0.2, 0.4)
IMPOSTOR_SHARE = 0.08  # of the weight of followed targets: as often something else is followed
MUTE_SHARE = 0.5  # of the rows, which are fitted again as if the identity network said nothing
Array = NDArray[np.float64]


def signs_of(kind: str) -> Array:
    return np.array([(name in SPEAKS_FOR) - float(name in SPEAKS_AGAINST) for name in FEATURES[kind]])


@dataclass
class Rows:
    """Questions of one kind that have an answer."""

    x: Array
    y: Array
    footage: NDArray[np.int64]
    source: NDArray[np.int64]
    stamp: Array
    run: NDArray[np.int64]

    def of(self, chosen: NDArray[np.bool_]) -> Rows:
        return Rows(*(value[chosen] for value in vars(self).values()))


def rows_of(asked: Asked, recordings: Sequence[Recording]) -> Rows:
    names = sorted({recording.footage for recording in recordings})
    number = np.array([names.index(recording.footage) for recording in recordings])
    source = np.array(asked.source, int)
    rows = Rows(
        np.array(asked.numbers),
        np.array(asked.right, float),
        number[source],
        source,
        np.array(asked.stamp),
        np.array(asked.run),
    )
    return rows.of(np.isfinite(rows.y))


def in_half(rows: Rows, recordings: Sequence[Recording], half: str) -> Rows:
    return rows.of(np.array([one.half == half for one in recordings])[rows.source])


def with_mute(rows: Rows, kind: str) -> Rows:
    """Some rows once more, as if the identity network said nothing."""
    names = FEATURES[kind]
    if "is_mute" not in names:
        return rows
    again = rows.of(np.random.default_rng(0).random(len(rows.y)) < MUTE_SHARE)
    for index, name in enumerate(names):
        if name in (*LOOKS, "continuity", "rival"):
            again.x[:, index] = 0.0
        elif name == "is_mute":
            again.x[:, index] = 1.0
        elif name == "mute_absence":
            again.x[:, index] = again.x[:, names.index("absence")]
        elif name == "mute_size":
            again.x[:, index] = again.x[:, names.index("smaller")] + again.x[:, names.index("larger")]
    return Rows(
        *(np.concatenate([a, b]) for a, b in zip(vars(rows).values(), vars(again).values(), strict=True))
    )


def weights_of(rows: Rows) -> Array:
    """Of the rows: footage with many of them counts less, impostors count as often as something else is
    followed."""
    weight, impostor = evened(rows.footage), rows.run < -1
    if impostor.any() and not impostor.all():
        share = IMPOSTOR_SHARE / (1 - IMPOSTOR_SHARE)
        weight[impostor] *= share * weight[~impostor].sum() / weight[impostor].sum()
    return weight / weight.mean()


def fit_model(kind: str, rows: Rows, is_evidence: bool) -> Model:
    """``is_evidence``: the share of right rows is taken off, so that the log-odds add to a prior."""
    whole = with_mute(rows, kind) if is_evidence else rows
    weight = weights_of(whole)
    weights, offset = fit(whole.x, whole.y, weight, signs_of(kind))
    if is_evidence:
        share = float(np.average(whole.y, weights=weight))
        offset -= float(np.log(share / (1 - share)))
    return Model(FEATURES[kind], weights, offset)


def averaged(rows: Rows, hold_s: float) -> Rows:
    """Rows of followed targets with the mean evidence, as the tracker holds it, in place of each image's
    own."""
    judge = Judge(_nothing("seen"), _nothing("followed"), _nothing("track"), hold_s)
    x, before, key = rows.x.copy(), None, None
    for index, value in enumerate(rows.x[:, 0]):
        this = rows.source[index], rows.run[index]
        dt = rows.stamp[index] - rows.stamp[index - 1] if this == key else 0.0
        before = judge.continued(before if this == key else None, float(value), dt)
        x[index, 0], key = before, this
    return replace(rows, x=x)


def fit_judge(recordings: Sequence[Recording]) -> Judge:
    """The models, fitted on the choosing half of the recordings, one after the other: each weighs what the
    one before says of footage that it was not fitted on."""
    chosen = [one for one in recordings if one.half == "choosing"]
    seen = rows_of(ask(chosen)["seen"], chosen)
    # What is followed is mostly right: its evidence is weighed by ``followed``.
    seen = seen.of(seen.run != FOLLOWED)
    judge = Judge(fit_model("seen", seen, True), _nothing("followed"), _nothing("track"), HOLDS_S[0])
    judge = _with_followed(judge, rows_of(ask(chosen, judge)["followed"], chosen))
    track = rows_of(ask(chosen, judge, learns=True)["track"], chosen)
    return replace(judge, track=fit_model("track", track, False))


def _nothing(kind: str) -> Model:
    return Model(FEATURES[kind], np.zeros(len(FEATURES[kind])), 2.0)


def _with_followed(judge: Judge, rows: Rows) -> Judge:
    """The judge with the model of followed targets, and the time over which it is averaged that says most."""
    best: tuple[float, Judge] | None = None
    weight = weights_of(rows)
    for hold_s in HOLDS_S:
        mean = averaged(rows, hold_s)
        odds = left_out(mean.x, mean.y, mean.footage, signs_of("followed"), weight)
        p = 1 / (1 + np.exp(-np.clip(odds, -30, 30)))
        loss = -float(np.average(np.log(np.clip(np.where(rows.y == 1, p, 1 - p), 1e-4, 1)), weights=weight))
        if best is None or loss < best[0]:
            best = loss, replace(judge, hold_s=hold_s, followed=fit_model("followed", mean, False))
    assert best is not None
    return best[1]


def table(judge: Judge, note: str) -> dict[str, Any]:
    def content(model: Model) -> dict[str, Any]:
        weights = {
            name: round(float(value), 4) for name, value in zip(model.names, model.weights, strict=True)
        }
        return {"offset": round(model.offset, 4), "weights": weights}

    models = {kind: content(getattr(judge, kind)) for kind in FEATURES}
    return {"format": FORMAT, "note": note, **models, "hold_s": judge.hold_s}


def count_numbers(content: dict[str, Any]) -> int:
    return 1 + sum(1 + len(content[kind]["weights"]) for kind in FEATURES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recordings", type=Path, nargs="+", metavar="FOLDER", help="of `record`")
    parser.add_argument(
        "--out", type=Path, default=TABLE, metavar="FILE", help="the table; default: the one here"
    )


def run(args: argparse.Namespace) -> int:
    recordings = [one for folder in args.recordings for one in read_recordings(folder)]
    judge = fit_judge(recordings)
    chosen = sum(one.half == "choosing" for one in recordings)
    content = table(judge, f"fitted on {chosen} recordings of the choosing half")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{args.out}: {count_numbers(content)} numbers")
    print_report(recordings, judge)
    return 0


def print_report(recordings: Sequence[Recording], judge: Judge) -> None:
    """Curves and reliability: of the choosing half with footage left out in turn, of the reporting half as it
    is."""
    asked = ask(recordings, judge, learns=True)
    figures: list[list[Cell]] = []
    diagrams: list[list[Cell]] = []
    for kind in FEATURES:
        rows = rows_of(asked[kind], recordings)
        if kind == "followed":
            rows = averaged(rows, judge.hold_s)
        for half in ("choosing", "reporting"):
            of = in_half(rows, recordings, half)
            if half == "reporting" and kind == "followed":
                of = of.of(of.run >= 0)  # no impostors
            if not len(of.y) or of.y.min() == of.y.max():
                continue
            model: Model = getattr(judge, kind)
            odds = of.x @ model.weights + model.offset
            if half == "choosing":
                odds = left_out(of.x, of.y, of.footage, signs_of(kind), weights_of(of))
            p = 1 / (1 + np.exp(-np.clip(odds, -30, 30)))
            if kind == "seen" and half == "reporting":
                p = np.full(len(p), np.nan)  # evidence without a prior
            bins = reliability(p, of.y) if np.isfinite(p).all() else []
            error = calibration_error(bins) if bins else float("nan")
            name = f"{kind}, {half}"
            at = "/".join(f"{share:.2f}" for share in found(odds, of.y))
            figures.append([name, int(of.y.sum()), int((1 - of.y).sum()), area(odds, of.y), at, error])
            diagrams.append([name, " ".join(f"{said:.2f}:{right:.2f}({n})" for said, right, n in bins)])
    headers = ("asked", "right", "wrong", "area", "wrong found at 1/3/10 % of alarms", "calibration")
    print_table(headers, figures, title="the judge")
    print_table(("asked", "confidence:right(number)"), diagrams, title="reliability")
