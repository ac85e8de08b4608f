"""Download an official EfficientTAM checkpoint and export it to a bundle.

An interrupted download is resumed; size and SHA-256 are compared with those announced by the hub. Four of
the files have a published SHA-256 that is known second hand: a file that differs from it is kept, with a
warning. With --sha256 a file that differs from that value is refused before it is downloaded.
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

from efftam_ros.core.errors import InputError, shown
from efftam_ros.runtime.bundle import file_sha256
from efftam_ros.tools import export
from efftam_ros.tools.common.options import add_quiet_argument
from efftam_ros.tools.common.outputs import Output, check_outputs

LIBRARY = "efftam_ros"
MOST_BYTES = 2**31
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
# Second hand: published values, not yet confirmed by a download from the hub. So a difference only warns.
PUBLISHED_SHA256 = {
    "efficienttam_ti": "acbb17b28cca1f860acee09c9ecb6efdb732080dc7a85a07292c31813175fa7d",
    "efficienttam_ti_512x512": "7d4d652a465f0081391050932f45d8a66768ccc99c8ea393ce8a5927e83f3b9b",
    "efficienttam_s": "2b572be30d9e96ee29c8d785fe157c6b079ede7d56fbc8a3671d4120e63c89cd",
    "efficienttam_s_512x512": "67b5840012737ed2c94a4cb8787c5c1b27b3a946045d2e602e65ef77230b6085",
}
# Packages whose exceptions mean network errors; they differ between versions of huggingface_hub.
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
        help="refuse a file with another SHA-256 (default: warn where it differs from the published value)",
    )
    add_quiet_argument(parser)


def run(args: argparse.Namespace) -> int:
    if args.name not in NAMES:
        raise InputError(f"{args.name!r} is not an official checkpoint; choose one of {', '.join(NAMES)}")
    for module in () if args.no_export else ("torch", "onnx"):
        if importlib.util.find_spec(module) is None:
            raise InputError(
                f"exporting needs {module}, which is not installed; pip install {module}, "
                "or download only with --no-export"
            )
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
    """Parse a SHA-256: 64 hexadecimal digits, in lower case on return."""
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

    A complete file is not downloaded again. A difference from `PUBLISHED_SHA256` is a warning on stderr;
    ``sha256``, in lower case, takes the place of that value and is required. Raises InputError: the hub can't
    be reached, an address without encryption, no such file, no SHA-256 announced, another one than
    ``sha256``, damaged download.
    """
    import huggingface_hub
    from huggingface_hub import utils

    hub_utils: Any = utils
    hub_utils.logging.set_verbosity_error()  # errors are reported below
    if quiet or not sys.stderr.isatty():
        hub_utils.disable_progress_bars()
    url = huggingface_hub.hf_hub_url(REPOSITORY, f"{name}.pt", endpoint=endpoint)
    _check_private(url)
    with _explained(url, name):
        announced = huggingface_hub.get_hf_file_metadata(url, endpoint=endpoint, library_name=LIBRARY)
    size, etag = _announced_content(announced, url)
    if sha256 is not None and etag != sha256:
        raise InputError(
            f"{url} has the SHA-256 {etag}, --sha256 asks for {sha256}; nothing was downloaded: check the"
            " value, or fetch from another --endpoint"
        )
    folder = cache_folder() if folder is None else folder
    path = folder / f"{name}.pt"
    if not path.is_file() or _fault(path, size, etag):
        _fetch_content(announced, url, name, path)
    published = PUBLISHED_SHA256.get(name)
    if sha256 is None and published not in (None, etag):
        print(
            f"efftam fetch: warning: {path} has the SHA-256 {etag}, the published one is {published} (second"
            f" hand, not confirmed); compare with the hub's page, or insist with --sha256 {published}",
            file=sys.stderr,
        )
    return path


def _fetch_content(announced: Any, url: str, name: str, path: Path) -> None:
    """Download to ``path`` through a partial file that a later run resumes. Raises InputError: the hub can't
    be reached, damaged download."""
    size, etag = announced.size, announced.etag
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    # The name contains the hash, so that a partial download of another version is not resumed.
    partial = folder / f".{name}.{etag[:16]}.incomplete"
    with _explained(url, name):
        _transfer(
            announced, partial, name, other_host=urlsplit(announced.location).netloc != urlsplit(url).netloc
        )
    fault = _fault(partial, size, etag)
    if fault:
        partial.unlink()
        raise InputError(f"the download of {url} {fault}; it was removed, fetch again")
    partial.replace(path)


def _check_private(url: str) -> None:
    """Raise InputError for an unencrypted address, whose response could be modified in transit."""
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise InputError(f"{shown(url)} is not encrypted; give an address that begins with https://")


def _announced_content(announced: Any, url: str) -> tuple[int, str]:
    """Size and SHA-256 announced by the hub. Raises InputError if one is missing or the transfer is
    unencrypted."""
    _check_private(announced.location)
    size, etag = announced.size, announced.etag
    if etag is None or not re.fullmatch(r"[0-9a-f]{64}", etag):
        raise InputError(
            f"{url} announces no SHA-256 ({shown(etag)}), so the download can't be checked;"
            " fetch from the hub itself"
        )
    if size is None or not 0 < size <= MOST_BYTES:
        raise InputError(f"{url} announces {size} bytes; a checkpoint has 1 to {MOST_BYTES}")
    return size, etag


def cache_folder() -> Path:
    """The user's cache folder for downloads."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / LIBRARY


def _transfer(announced: Any, partial: Path, name: str, *, other_host: bool) -> None:
    """Download the missing part of ``partial``.

    Uses `http_get`, because `hf_hub_download` does not resume interrupted downloads.
    """
    from huggingface_hub import utils
    from huggingface_hub.file_download import http_get

    hub_utils: Any = utils
    done = partial.stat().st_size if partial.exists() else 0
    if done > announced.size:
        partial.unlink(missing_ok=True)
        done = 0
    # The token must not be sent to the server that the hub redirects to.
    headers = hub_utils.build_hf_headers(token=False if other_host else None, library_name=LIBRARY)
    with partial.open("ab") as file:
        http_get(
            announced.location,
            file,
            resume_size=done,
            headers=headers,
            expected_size=announced.size,
            displayed_filename=f"{name}.pt",
        )


@contextmanager
def _explained(url: str, name: str) -> Iterator[None]:
    """Translate exceptions of the hub's client to InputError."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError, RepositoryNotFoundError

    remedy = f"or copy {name}.pt from elsewhere and run: efftam export {name}.pt --config {name} --out {name}"
    try:
        yield
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
    """First line of the original cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160]


def _fault(path: Path, size: int, etag: str) -> str:
    """How a file differs from the announced one, "" if it does not; the etag of a large file is its
    SHA-256."""
    actual = path.stat().st_size
    if actual != size:
        return f"has {actual} bytes, the hub announces {size}"
    if file_sha256(path) != etag:
        return f"does not have the SHA-256 that the hub announces ({etag[:12]}...)"
    return ""
