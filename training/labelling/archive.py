"""Labels without pixels: masks, the origin of their frames, and which segments are finished.

Labels take hours to make; pixels can be read again from the repositories. So only the labels are kept, and
`restore` makes the same clips of them again. The archive is a zip file: index.json with the clips' meta.json
and the marks of finished segments, and for each clip runs/NAME.npz, the lengths of the runs of equal pixels.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from training.labelling.clips import describe, read_masks, write_clip
from training.labelling.reserved import refuse_reserved
from training.labelling.scenes import read_numbers
from training.labelling.sources import Video

DONE = "done"  # name of the folder that contains the marks of finished segments
REMARKS = Path(__file__).with_name("remarks.csv")
KINDS = (
    "whole",
    "part",
    "group",
    "wrong",
    "double",
)  # kinds of remarks on tracks
LEFT_OUT = KINDS[3:]
Remarks = Mapping[tuple[str, int], str]
"""The remark, one of `KINDS`, on each checked track, by the clip's name and the track's number from 1."""

EPOCH = (1980, 1, 1, 0, 0, 0)  # date of all members of an archive, so that equal labels give an equal file


def read_remarks(path: Path = REMARKS) -> Remarks:
    """Read the remarks on the tracks that were checked by eye."""
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["clip"], int(row["track"])): row["remark"] for row in csv.DictReader(file)}


def pack_runs(masks: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Convert masks, bool [tracks, frames, H, W], to arrays that compress well.

    Each mask becomes the lengths of its runs of equal pixels in row order, beginning with zeros. A length is
    stored as its difference from the length two runs before: similar rows make these differences small.
    """
    tracks, frames, height, width = masks.shape
    counts, parts = [], []
    for mask in masks.reshape(tracks * frames, height * width):
        edges = np.flatnonzero(np.diff(mask)) + 1
        lengths = np.diff(np.concatenate([[0] if not mask[0] else [0, 0], edges, [mask.size]]))
        parts.append(np.concatenate([lengths[:2], lengths[2:] - lengths[:-2]]))
        counts.append(len(lengths))
    runs = np.concatenate(parts).astype(np.int32)
    return {"shape": np.array(masks.shape), "counts": np.array(counts, np.int32), "runs": runs}


def unpack_runs(packed: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Return the masks that `pack_runs` converted. Raises InputError if the arrays do not describe masks."""
    tracks, frames, height, width = (int(n) for n in packed["shape"])
    counts = packed["counts"]
    if len(counts) != tracks * frames or counts.sum() != len(packed["runs"]):
        raise InputError("labels are damaged: runs are missing; fetch the file again")
    masks = np.zeros((len(counts), height * width), bool)
    for mask, part in zip(masks, np.split(packed["runs"], np.cumsum(counts)[:-1]), strict=True):
        lengths = part.astype(np.int64)
        for start in (0, 1):
            lengths[start::2] = np.cumsum(lengths[start::2])
        if (lengths < 0).any() or lengths.sum() != mask.size:
            raise InputError("labels are damaged: runs do not fill a mask; fetch the file again")
        mask[:] = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    return masks.reshape(tracks, frames, height, width)


def pack(
    folder: Path,
    out: Path,
    remarks: Remarks,
    progress: Callable[[int], object] = lambda count: None,
) -> tuple[int, int]:
    """Write the labels of a folder of clips into one file; return the numbers of clips and tracks.

    Tracks that are wrong or double are left out. The remarks on other tracks are added to their figures.
    ``progress`` is called with the number of clips just finished. Raises InputError if there is no labelled
    clip.
    """
    clips, entries, tracks = [], {}, 0
    for meta_file in sorted(folder.glob("*/meta.json")):
        progress(1)
        meta, masks = json.loads(meta_file.read_text()), read_masks(meta_file.parent)
        said = [remarks.get((meta["name"], i + 1)) for i in range(len(masks))]
        kept = [i for i, remark in enumerate(said) if remark not in LEFT_OUT]
        if not kept:
            continue
        if len(kept) < len(masks) or any(said):
            source = {key: meta[key] for key in Video("", "", "").source()}
            figures = [{**meta["figures"][i], **({"remark": said[i]} if said[i] else {})} for i in kept]
            meta = describe(meta["name"], source, meta["frames_in_source"], masks[kept], figures)
        content = io.BytesIO()
        np.savez(content, **pack_runs(masks[kept]))  # type: ignore[arg-type]
        entries[f"runs/{meta['name']}.npz"] = content.getvalue()
        clips.append(meta)
        tracks += len(kept)
    if not clips:
        raise InputError(f"{folder} holds no labelled clip")
    done = {path.name: json.loads(path.read_text()) for path in sorted((folder / DONE).glob("*.json"))}
    index = json.dumps({"clips": clips, "done": done}, separators=(",", ":")).encode()
    part = out.with_name(out.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_LZMA) as archive:
        for name, data in {"index.json": index, **entries}.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_LZMA)
    part.replace(out)
    return len(clips), tracks


def restore(
    labels: Path,
    out: Path,
    clones: Path | None,
    progress: Callable[[int], object] = lambda count: None,
) -> tuple[int, int, list[str]]:
    """Make the clips that OUT lacks again, and mark segments as finished as in the archive.

    ``progress`` is called with the number of clips just finished. Returns the numbers of clips and tracks in
    OUT, and a line for each video that failed. A failure does not stop the other videos.
    """
    failures = []
    with _opened(labels) as archive:
        index = json.loads(archive.read("index.json"))
        (out / DONE).mkdir(parents=True, exist_ok=True)
        missing = [meta for meta in index["clips"] if not (out / meta["name"]).exists()]
        progress(len(index["clips"]) - len(missing))

        def place(meta: dict[str, Any]) -> tuple[str, ...]:
            return tuple(meta[key] for key in ("source_repository", "source_commit", "source_path", "terms"))

        for source, group in groupby(sorted(missing, key=place), key=place):
            wanted = list(group)
            try:
                refuse_reserved(source, f"{labels}: {'/'.join(source[:3])}")
                with Video(*source).opened(clones) as video:
                    for meta in wanted:
                        with np.load(io.BytesIO(archive.read(f"runs/{meta['name']}.npz"))) as stored:
                            masks = unpack_runs(dict(stored))
                        frames = read_numbers(video, meta["frames_in_source"])
                        pairs = zip(frames, masks.swapaxes(0, 1), strict=True)
                        write_clip(out / meta["name"], pairs, meta)
            except InputError as error:
                failures.append(f"{wanted[0]['name']}: {error}")
            progress(len(wanted))
        for name, mark in index["done"].items():
            if not (out / DONE / name).exists():
                (out / DONE / name).write_text(json.dumps(mark) + "\n")
    there = [meta for meta in index["clips"] if (out / meta["name"]).exists()]
    return len(there), sum(meta["targets"] for meta in there), failures


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
        archive.getinfo("index.json")
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror})") from None
    except (zipfile.BadZipFile, KeyError):
        raise InputError(f"{path} is no archive of labels") from None
    return archive
