"""Download an official EfficientTAM checkpoint and export it to a bundle.

The file's SHA-256 is compared with the one that the hub announces. With --sha256 a file with another SHA-256
is refused before it is downloaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from efftam_ros.core.config import expanded
from efftam_ros.core.errors import InputError, shown
from efftam_ros.runtime.bundle import file_sha256
from efftam_ros.tools.common.options import add_quiet_argument
from efftam_ros.tools.common.outputs import Output, check_outputs
from efftam_workshop.export import command as export
from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS

LIBRARY = "efftam_ros"
REPOSITORY = "yunyangx/efficient-track-anything"
HUB, EXPORT = ("huggingface_hub",), ("torch", "onnx", "onnxscript")
NAMES = tuple(CONFIGURATIONS)
# Top-level packages whose exceptions mean network errors; versions of huggingface_hub use different ones.
TRANSPORTS = ("huggingface_hub", "httpx", "httpx2", "httpcore", "requests", "urllib3")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the bundle (default: NAME in the current folder)"
    )
    parser.add_argument(
        "--no-export", action="store_true", help="download only; with --out, NAME.pt goes into that folder"
    )
    export.add_weights_argument(parser)
    parser.add_argument(
        "--endpoint", metavar="URL", help="another hub or a mirror (default: HF_ENDPOINT or the hub)"
    )
    parser.add_argument(
        "--sha256",
        type=sha256_digest,
        metavar="HEX",
        help="refuse a file with another SHA-256",
    )
    add_quiet_argument(parser)


def run(args: argparse.Namespace) -> int:
    if args.name not in NAMES:
        raise InputError(f"{args.name!r} is not an official checkpoint; choose one of {', '.join(NAMES)}")
    needed = HUB if args.no_export else HUB + EXPORT
    if missing := [module for module in needed if importlib.util.find_spec(module) is None]:
        only = "" if args.no_export else "; to download only: --no-export"
        raise InputError(f"not installed: {', '.join(missing)}; run: pip install {' '.join(missing)}{only}")
    out = args.out or Path(args.name)
    check_outputs([Output("--out", args.out if args.no_export else out, "folder")])
    folder = args.out if args.no_export else None
    checkpoint = download(
        args.name, endpoint=args.endpoint, folder=folder, quiet=args.quiet, sha256=args.sha256
    )
    print(checkpoint)
    if args.no_export:
        return 0
    return export.run(
        argparse.Namespace(
            checkpoint=checkpoint,
            config=args.name,
            out=out,
            weights=args.weights,
            licence="Apache-2.0",
            note=f"{REPOSITORY}, {args.name}.pt",
            json=False,
        )
    )


def sha256_digest(text: str) -> str:
    """Return a SHA-256 of 64 hexadecimal digits in lower case, for argparse."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a SHA-256 of 64 hexadecimal digits ({len(text)} characters);"
            " take it from: sha256sum FILE"
        )
    return text.lower()


def download(
    name: str,
    *,
    endpoint: str | None = None,
    folder: Path | None = None,
    quiet: bool = False,
    sha256: str | None = None,
) -> Path:
    """Download the checkpoint of an official configuration to ``folder`` (default: the user's cache).

    A complete file is not downloaded again. Returns the file's path. Raises InputError if the hub can't be
    reached, an address is not encrypted, the file does not exist, the hub announces no SHA-256 or another one
    than ``sha256`` (lower case), or the downloaded file is damaged.
    """
    import huggingface_hub
    from huggingface_hub import utils

    hub_utils: Any = utils
    hub_utils.logging.set_verbosity_error()  # errors are reported below
    if quiet or not sys.stderr.isatty():
        hub_utils.disable_progress_bars()
    url = huggingface_hub.hf_hub_url(REPOSITORY, f"{name}.pt", endpoint=endpoint)
    _check_private(url)
    folder = cache_folder() if folder is None else folder
    with _explained(url, name):
        announced = huggingface_hub.get_hf_file_metadata(url, endpoint=endpoint, library_name=LIBRARY)
        _check_private(announced.location)
        etag = announced.etag
        if etag is None or not re.fullmatch(r"[0-9a-f]{64}", etag):
            raise InputError(
                f"{url} announces no SHA-256 ({shown(etag)}), so the download can't be checked;"
                " fetch from the hub itself"
            )
        if sha256 is not None and etag != sha256:
            raise InputError(
                f"{url} has the SHA-256 {etag}, --sha256 asks for {sha256}; nothing was downloaded: check the"
                " value, or fetch from another --endpoint"
            )
        found = huggingface_hub.hf_hub_download(
            REPOSITORY, f"{name}.pt", endpoint=endpoint, local_dir=folder, library_name=LIBRARY
        )
    path = Path(found)
    if file_sha256(path) != etag:
        path.unlink()
        raise InputError(
            f"the download of {url} does not have the SHA-256 that the hub announces ({etag[:12]}...); it was"
            " removed, fetch again"
        )
    return path


def _check_private(url: str) -> None:
    """Raise InputError for an unencrypted address, whose response could be modified in transit."""
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise InputError(f"{shown(url)} is not encrypted; give an address that begins with https://")


def cache_folder() -> Path:
    """Return the user's cache folder for downloads."""
    return Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache")) / LIBRARY


@contextmanager
def _explained(url: str, name: str) -> Iterator[None]:
    """Translate network exceptions of the hub's client to InputError."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError, RepositoryNotFoundError

    remedy = f"or copy {name}.pt from elsewhere and run: efftam export {name}.pt --config {name} --out {name}"
    try:
        yield
    except InputError:
        raise
    except LocalEntryNotFoundError as error:
        raise InputError(f"{url} can't be reached ({_reason(error)}); check the network, {remedy}") from None
    except (EntryNotFoundError, RepositoryNotFoundError):
        raise InputError(f"the hub has no {url} (404); check --endpoint, {remedy}") from None
    except Exception as error:
        transport = type(error).__module__.partition(".")[0] in TRANSPORTS
        # A truncated download is an OSError without errno in every version of the client.
        incomplete = isinstance(error, OSError) and error.errno is None
        if not (transport or incomplete):
            raise
        raise InputError(f"{url} can't be downloaded ({_reason(error)}); try again, {remedy}") from None


def _reason(error: BaseException) -> str:
    """Return the first line of the innermost cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160]
