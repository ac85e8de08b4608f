"""Download an official EfficientTAM checkpoint and export it to a bundle.

The download resumes where it was interrupted, and its size and SHA-256 are compared with what the hub
announces.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from efftam_ros.core.contract import InputRefused
from efftam_ros.tools import export

REPOSITORY = "yunyangx/efficient-track-anything"
NAMES = (
    "efficienttam_ti",
    "efficienttam_ti_1",
    "efficienttam_ti_2",
    "efficienttam_ti_512x512",
    "efficienttam_s",
    "efficienttam_s_1",
    "efficienttam_s_2",
    "efficienttam_s_512x512",
)
# Packages whose exceptions mean trouble on the way to the hub; huggingface_hub has changed its own twice.
TRANSPORTS = ("huggingface_hub", "httpx", "httpx2", "httpcore", "requests", "urllib3")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the bundle (default: NAME in the current folder)"
    )
    parser.add_argument(
        "--no-export", action="store_true", help="download only; with --out, NAME.pt goes into that folder"
    )
    parser.add_argument(
        "--weights", choices=("float32", "float16"), default="float32", help="as in efftam export"
    )
    parser.add_argument(
        "--endpoint", metavar="URL", help="another hub or a mirror (default: HF_ENDPOINT or the hub)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    if args.name not in NAMES:
        raise InputRefused(f"{args.name!r} is not an official checkpoint; choose one of {', '.join(NAMES)}")
    for module in () if args.no_export else ("torch", "onnx"):
        if importlib.util.find_spec(module) is None:
            raise InputRefused(
                f"exporting needs {module}, which is not installed; pip install {module}, "
                "or download only with --no-export"
            )
    folder = args.out if args.no_export else None
    checkpoint = download(args.name, endpoint=args.endpoint, folder=folder, quiet=args.quiet)
    print(checkpoint)
    if args.no_export:
        return 0
    return export.run(
        argparse.Namespace(
            checkpoint=checkpoint,
            config=args.name,
            out=args.out or Path(args.name),
            weights=args.weights,
            licence="Apache-2.0",
            note=f"{REPOSITORY}, {args.name}.pt",
            json=False,
        )
    )


def download(
    name: str, *, endpoint: str | None = None, folder: Path | None = None, quiet: bool = False
) -> Path:
    """The checkpoint file of an official configuration, from the hub or, once downloaded, from the hub's
    cache.

    ``folder``: put it there instead of the cache. Raises InputRefused: hub out of reach, no such file,
    damaged download.
    """
    import huggingface_hub
    from huggingface_hub import utils

    hub_utils: Any = utils
    hub_utils.logging.set_verbosity_error()  # what goes wrong is said below, in one line
    if quiet or not sys.stderr.isatty():
        hub_utils.disable_progress_bars()
    file = f"{name}.pt"
    url = huggingface_hub.hf_hub_url(REPOSITORY, file, endpoint=endpoint)
    with _explained(url, name):
        announced = huggingface_hub.get_hf_file_metadata(url, endpoint=endpoint, library_name="efftam_ros")
        path = Path(
            huggingface_hub.hf_hub_download(
                REPOSITORY,
                file,
                revision=announced.commit_hash,
                endpoint=endpoint,
                local_dir=folder,
                library_name="efftam_ros",
            )
        )
    _check(path, announced.size, announced.etag)
    return path


@contextmanager
def _explained(url: str, name: str) -> Iterator[None]:
    """Turn what the hub's client raises into one line."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError, RepositoryNotFoundError

    remedy = f"or copy {name}.pt from elsewhere and run: efftam export {name}.pt --config {name} --out {name}"
    try:
        yield
    except LocalEntryNotFoundError as error:
        raise InputRefused(
            f"{url} can't be reached ({_reason(error)}); check the network, {remedy}"
        ) from None
    except (EntryNotFoundError, RepositoryNotFoundError):
        raise InputRefused(f"the hub has no {url} (404); check --endpoint, {remedy}") from None
    except Exception as error:
        transport = type(error).__module__.partition(".")[0] in TRANSPORTS
        # A download that ends early is a bare OSError in every version of the client.
        incomplete = isinstance(error, OSError) and error.errno is None
        if not (transport or incomplete):
            raise
        raise InputRefused(f"{url} can't be downloaded ({_reason(error)}); try again, {remedy}") from None


def _reason(error: BaseException) -> str:
    """The first line of the error that began it."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160]


def _check(path: Path, size: int | None, etag: str | None) -> None:
    """Compare with what was announced; the hub's etag of a large file is its SHA-256."""
    actual = path.stat().st_size
    if size is not None and actual != size:
        problem = f"has {actual} bytes, the hub announces {size}"
    elif etag is not None and re.fullmatch(r"[0-9a-f]{64}", etag) and _sha256(path) != etag:
        problem = f"does not have the SHA-256 that the hub announces ({etag[:12]}...)"
    else:
        return
    raise InputRefused(f"{path} {problem}; remove it ({path.resolve()}) and fetch again")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
