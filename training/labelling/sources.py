"""The videos to label: files, or rows of a list, which are read from clones of repositories."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from efftam_ros.core.errors import InputError
from training.clones import Commit, find_clone
from training.labelling.reserved import refuse_reserved

COLUMNS = ("repository", "commit", "path")
UNSTATED = "research use"
LONGEST_NAME = 48


@dataclass(frozen=True)
class Video:
    """A video: a file of a repository's commit, or, with an empty ``repository``, a local file."""

    repository: str
    commit: str
    path: str
    terms: str = UNSTATED

    @property
    def key(self) -> str:
        """A name for this video's files; no other video has the same."""
        start = f"{self.repository.rpartition('/')[2]}_{Path(self.path).stem}"
        name = re.sub(r"[^A-Za-z0-9]+", "_", start)[-LONGEST_NAME:].strip("_")
        return f"{name}_{hashlib.sha256(json.dumps(self.source()).encode()).hexdigest()[:6]}"

    def source(self) -> dict[str, str]:
        """Return the entries of meta.json that describe where the video comes from."""
        return {
            "source_repository": self.repository,
            "source_commit": self.commit,
            "source_path": self.path,
            "terms": self.terms,
        }

    @contextmanager
    def opened(self, clones: Path | None) -> Iterator[Path]:
        """Yield the path of the video as a file. Raises InputError if it is not available."""
        if not self.repository:
            if not Path(self.path).is_file():
                raise InputError(f"{self.path} does not exist")
            yield Path(self.path)
            return
        if clones is None:
            raise InputError(f"{self.repository} is read from a clone; name their folder with --clones")
        with tempfile.TemporaryDirectory(prefix="efftam_label_") as folder:
            file = Path(folder) / Path(self.path).name
            with Commit(find_clone(clones, self.repository), self.repository, self.commit) as files:
                file.write_bytes(files.read(self.path))
            yield file


def read_videos(names: Iterable[str]) -> list[Video]:
    """Return the videos of lists and of single files, each once.

    Lists are CSV files with the columns repository, commit, path and optionally terms. Raises InputError if a
    list is invalid or a reserved data set is named.
    """
    videos: dict[str, Video] = {}
    for name in names:
        for video in _rows(Path(name)) if name.lower().endswith(".csv") else [_file(name)]:
            videos.setdefault(video.key, video)
    return list(videos.values())


def _file(name: str) -> Video:
    refuse_reserved([name], name)
    if not Path(name).is_file():
        raise InputError(f"{name} does not exist; give a video or a list that ends in .csv")
    return Video("", "", name)


def _rows(path: Path) -> Iterator[Video]:
    try:
        file = path.open(newline="", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror})") from None
    with file:
        reader = csv.DictReader(file)
        if not set(COLUMNS) <= set(reader.fieldnames or ()):
            raise InputError(f"{path} needs the columns {', '.join(COLUMNS)}")
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                raise InputError(f"{where} has not as many cells as there are columns")
            refuse_reserved(row.values(), where)
            if row["repository"].count("/") != 1 or not re.fullmatch(r"[0-9a-f]{40}", row["commit"]):
                raise InputError(f"{where} needs OWNER/NAME and a commit of 40 digits")
            yield Video(row["repository"], row["commit"], row["path"], row.get("terms") or UNSTATED)
