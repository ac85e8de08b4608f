"""Label footage without labels: propose moving objects, follow each by two trackers, outline them.

OUT/NAME gets video.mp4, masks.npz, boxes.csv and meta.json, which `data` packs as sequences_train. Videos are
files, or rows of a list (CSV: repository, commit, path, terms) that are read from clones. The first segments
of all videos are labelled first, then the second ones. Finished segments are kept: the same command
continues.

`--pack LABELS` writes the labels of OUT into one small file, without pixels. `--restore LABELS` makes the
clips of such a file again from clones; labelling can continue from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from efftam_ros.core.errors import InputError
from efftam_ros.tools.common.terminal import progress_bar
from training.labelling.archive import DONE, pack, read_remarks, restore
from training.labelling.clips import clip_size, describe, shrunk_tracks, write_clip
from training.labelling.followers import Follower, open_followers
from training.labelling.proposals import Proposal, propose
from training.labelling.scenes import MIN_LENGTH, Segment, read_dense, read_frames, segments
from training.labelling.segmenter import MobileSam, Segmenter
from training.labelling.sources import Video, read_videos
from training.labelling.tracks import clips_of, find_tracks

SEGMENTS = 3  # default number per video: more segments show the same scene again
# If the median speed of the objects is larger, in sizes per frame, every frame of the file is followed.
FAST = 0.1
MAX_CLIPS = 10  # largest number of clips of a segment, and step between the segments' clip numbers


@dataclass(frozen=True)
class Tools:
    """The networks that label: a segmenter and two trackers."""

    segmenter: Segmenter
    followers: tuple[Follower, Follower]


@dataclass(frozen=True)
class Task:
    """One segment of a video; ``segment`` counts from 0."""

    video: Video
    segment: int

    @property
    def mark(self) -> str:
        return f"{self.video.key}.{self.segment}.json"


def open_tasks(videos: Iterable[Video], out: Path, count: int) -> list[Task]:
    """Return the unfinished segments among the first ``count`` of each video, first segments first."""
    videos = list(videos)
    tasks = [Task(video, segment) for segment in range(count) for video in videos]
    return [task for task in tasks if not (out / DONE / task.mark).exists()]


def label(
    tasks: Iterable[Task],
    out: Path,
    tools: Tools,
    clones: Path | None = None,
    grid: bool = False,
    progress: Callable[[int], object] = lambda count: None,
) -> list[str]:
    """Write the clips of the tasks; return one line for each failure.

    A failure does not stop other tasks. ``grid``: also propose objects by clicks on a grid. ``progress`` is
    called with the number of tasks just finished.
    """
    failures = []
    for task in tasks:
        failure = _try(task, out, tools, clones, grid)
        failures += [failure] if failure else []
        progress(1)
    return failures


def _try(task: Task, out: Path, tools: Tools, clones: Path | None, grid: bool) -> str | None:
    try:
        result = _label(task, out, tools, clones, grid)
    except (InputError, cv2.error) as error:
        return f"{task.video.key}: {' '.join(str(error).split())}"
    mark = out / DONE / task.mark
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps({"segment": task.segment, **task.video.source(), **result}) + "\n")
    return None


def _label(task: Task, out: Path, tools: Tools, clones: Path | None, grid: bool) -> dict[str, Any]:
    """Write the clips of a segment; return numbers of tracks and frames, the proposals' fates, CPU time."""
    started, fates, tracks, labels = time.process_time(), Counter[str](), 0, 0
    with task.video.opened(clones) as path:
        film, proposals = _proposed(path, task.segment, tools.segmenter, grid)
    if proposals:
        frames, numbers = film.frames, film.numbers
        height, width = frames[0].shape[:2]
        unique = find_tracks(tools.segmenter, tools.followers, frames, proposals, fates)
        for number, (where, group) in zip(range(MAX_CLIPS), clips_of(unique), strict=False):
            masks, figures = shrunk_tracks(where, group, clip_size(width, height))
            name = f"{task.video.key}_{task.segment * MAX_CLIPS + number + 1}"
            if not len(masks) or (out / name).exists():
                continue
            meta = describe(name, task.video.source(), [numbers[i] for i in where], masks, figures)
            pairs = zip((frames[i] for i in where), masks.swapaxes(0, 1), strict=True)
            write_clip(out / name, pairs, meta)
            tracks, labels = tracks + len(masks), labels + len(masks) * len(where)
    spent = round(time.process_time() - started, 1)
    return {"tracks": tracks, "frames": labels, "fates": dict(fates), "cpu_s": spent}


def _proposed(path: Path, number: int, segmenter: Segmenter, grid: bool) -> tuple[Segment, list[Proposal]]:
    """Return segment ``number`` of a video and the objects proposed in its first frame.

    If the objects move fast, the segment contains every frame of the file. There are no objects if the video
    has no such segment.
    """
    film = read_frames(path)
    found = list(segments(film.frames, number + 1)) if len(film.frames) > MIN_LENGTH else []
    if number >= len(found):
        return film, []
    part = slice(*found[number])
    segment = Segment(film.frames[part], film.numbers[part])
    proposals = propose(segmenter, segment.frames, grid)
    if proposals and float(np.median([one.pace for one in proposals])) > FAST:
        segment = read_dense(path, segment)
    return segment, proposals


_tools: Tools  # the networks of this process, opened by `_start`


def _start(models: Path, peers: Path) -> None:
    global _tools
    cv2.setNumThreads(1)
    _tools = Tools(MobileSam(models), open_followers(peers))


def _work(job: tuple[Task, Path, Path | None, bool]) -> str | None:
    task, out, clones, grid = job
    return _try(task, out, _tools, clones, grid)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the clips")
    videos = parser.add_argument(
        "videos", nargs="+", default=[], metavar="SOURCES.csv|VIDEO", help="lists of videos, and videos"
    )
    videos.required = False  # otherwise argparse takes no videos as soon as an option follows OUT
    parser.add_argument(
        "--models", type=Path, metavar="DIST", help="folder of MobileSAM's encoder.onnx and sam.onnx"
    )
    parser.add_argument(
        "--peers", type=Path, metavar="PEERS", help="folder of the ONNX files of FEAR-XS and NanoTrack V3"
    )
    parser.add_argument(
        "--clones", type=Path, metavar="FOLDER", help="folder of the clones OWNER+NAME, bare or not"
    )
    parser.add_argument(
        "--segments",
        type=int,
        default=SEGMENTS,
        metavar="N",
        help="segments of each video; default %(default)s",
    )
    parser.add_argument(
        "--grid",
        action="store_true",
        help="click on a grid as well, where nothing moves on its own: more tracks, some of them parts",
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="default %(default)s")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--pack", type=Path, metavar="LABELS", help="write the labels of OUT into one file")
    other.add_argument("--restore", type=Path, metavar="LABELS", help="make the clips of a file's labels")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    if args.pack is not None:
        return _pack(args)
    if args.restore is not None:
        return _restore(args)
    return _label_all(args)


def _label_all(args: argparse.Namespace) -> int:
    if not args.videos:
        raise InputError("nothing to label; give a list (SOURCES.csv) or videos")
    if args.models is None or args.peers is None:
        raise InputError("labelling needs --models DIST and --peers PEERS")
    if args.segments < 1 or args.processes < 1:
        raise InputError("--segments and --processes need numbers from 1")
    tasks = open_tasks(read_videos(args.videos), args.out, args.segments)
    with progress_bar(len(tasks), "labelling", unit="segment", quiet=args.quiet) as bar:
        failures = list(_results(tasks, args, bar.update))
    clips, tracks = _counted(args.out)
    print(f"{args.out}: {clips} clips, {tracks} tracks")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def _results(tasks: list[Task], args: argparse.Namespace, progress: Callable[[int], object]) -> Iterator[str]:
    if args.processes == 1:
        _start(args.models, args.peers)
        yield from label(tasks, args.out, _tools, args.clones, args.grid, progress)
        return
    jobs = [(task, args.out, args.clones, args.grid) for task in tasks]
    with get_context("spawn").Pool(args.processes, _start, (args.models, args.peers)) as pool:
        for failure in pool.imap_unordered(_work, jobs):
            progress(1)
            if failure:
                yield failure


def _counted(out: Path) -> tuple[int, int]:
    """Return the numbers of clips and of tracks in ``out``."""
    targets = [json.loads(path.read_text())["targets"] for path in out.glob("*/meta.json")]
    return len(targets), sum(targets)


def _pack(args: argparse.Namespace) -> int:
    count = len(list(args.out.glob("*/meta.json")))
    with progress_bar(count, "packing", unit="clip", quiet=args.quiet) as bar:
        clips, tracks = pack(args.out, args.pack, read_remarks(), bar.update)
    print(f"{args.pack}: {clips} clips, {tracks} tracks, {args.pack.stat().st_size / 1e6:.2f} MB")
    return 0


def _restore(args: argparse.Namespace) -> int:
    with progress_bar(None, "restoring", unit="clip", quiet=args.quiet) as bar:
        clips, tracks, failures = restore(args.restore, args.out, args.clones, bar.update)
    print(f"{args.out}: {clips} clips, {tracks} tracks")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0
