"""`efftam fetch` against a server on localhost that speaks the hub's file protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hub_server import Hub, serving
from tools_helpers import assert_refused

from efftam_workshop.fetch import NAMES, REPOSITORY

pytest.importorskip("huggingface_hub", reason="fetch needs huggingface_hub: pip install .[workshop]")

NAME = "efficienttam_ti_1"
"""A file without a published SHA-256."""
PUBLISHED = "efficienttam_ti_512x512"
CONTENT = np.random.default_rng(0).bytes(24_000_000)  # the hub's client writes pieces of ten megabytes


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving({f"{REPOSITORY}/{NAME}.pt": CONTENT}) as server:
        yield server


@pytest.fixture
def fetch(efftam_here, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The command with an empty cache of its own and without any proxy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)

    def run(*arguments: object):
        return efftam_here("fetch", "--endpoint", hub.url, *arguments)

    return run


def test_all_packages_that_an_export_lacks_are_named_at_once(efftam_here, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    needed = "huggingface_hub torch onnx onnxscript"
    assert_refused(efftam_here("fetch", NAME), f"pip install {needed}", "--no-export")


def test_the_file_is_downloaded_once_and_checked(fetch, hub: Hub, tmp_path: Path):
    first = fetch(NAME, "--no-export")
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    path = Path(first.stdout.strip())
    assert path.name == f"{NAME}.pt"
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(tmp_path / "cache")
    assert hub.requests.count("GET") == 1
    again = fetch(NAME, "--no-export")
    assert again.stdout == first.stdout
    assert hub.requests.count("GET") == 1


def test_a_connection_that_breaks_again_and_again_ends_in_one_line_and_leaves_no_file(
    fetch, hub: Hub, tmp_path: Path
):
    hub.cut_after = [22_000_000] + [0] * 20
    assert_refused(fetch(NAME, "--no-export"), "can't be downloaded", "try again", f"efftam export {NAME}.pt")
    assert not list(tmp_path.rglob("*.pt"))
    hub.cut_after.clear()
    assert Path(fetch(NAME, "--no-export").stdout.strip()).read_bytes() == CONTENT


@pytest.mark.slow
def test_an_official_checkpoint_becomes_a_bundle(fetch, hub: Hub, tmp_path: Path):
    torch = pytest.importorskip("torch", reason="export needs torch: scripts/setup_env --with-tests")
    from golden.weights import weights

    from efftam_ros.runtime.bundle import Bundle

    model = {name: torch.from_numpy(values) for name, values in weights("ti").items()}
    torch.save({"model": model}, tmp_path / "official.pt")
    hub.files[f"{REPOSITORY}/{PUBLISHED}.pt"] = (tmp_path / "official.pt").read_bytes()
    result = fetch(PUBLISHED)
    assert result.returncode == 0, result.stderr
    bundle = Bundle.load(tmp_path / PUBLISHED)
    assert bundle.spec.name == PUBLISHED
    assert bundle.source["checkpoint_sha256"]


ANOTHER = "ab" * 32


@pytest.mark.parametrize(
    ("announced", "asked", "words"),
    [
        (ANOTHER, None, ("SHA-256", ANOTHER[:12], "fetch again")),  # the content is not what was announced
        ("", ANOTHER, (ANOTHER, hashlib.sha256(CONTENT).hexdigest(), "--endpoint")),
        *((etag, None, ("announces no SHA-256",)) for etag in ("33a64df551425fcc", "../../x", "AB" * 32)),
    ],
)
def test_what_is_not_the_file_that_was_announced_or_asked_for_is_refused_and_not_kept(
    fetch, hub: Hub, tmp_path: Path, announced: str, asked: str | None, words
):
    hub.announce = announced
    assert_refused(fetch(NAME, "--no-export", *(() if asked is None else ("--sha256", asked))), *words)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 10_000]
    assert ("GET" in hub.requests) == (words[-1] == "fetch again")


def test_a_file_in_the_cache_with_another_sha256_than_asked_for_is_refused(fetch):
    assert fetch(NAME, "--no-export").returncode == 0
    assert_refused(fetch(NAME, "--no-export", "--sha256", ANOTHER), ANOTHER)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(
            ((NAME, "--sha256", text), ("--sha256", "64", "sha256sum"))
            for text in ("", "abc", "g" * 64, "a" * 63, "a" * 65, " " + "a" * 63)
        ),
        *(
            ((NAME, "--endpoint", url), ("is not encrypted", "https://"))
            for url in ("http://hub.example", "http://127.0.0.1.hub.example", "ftp://hub.example")
        ),
        ((NAME, "--endpoint", "http://127.0.0.1:9"), ("127.0.0.1:9", "Connection refused", "efftam export")),
        (("efficienttam_xl",), ("'efficienttam_xl' is not an official checkpoint", *NAMES)),
        (("efficienttam_s",), ("has no", "efficienttam_s.pt (404)", "--endpoint")),
    ],
)
def test_what_can_not_be_fetched_is_one_line(fetch, hub: Hub, arguments, words):
    assert_refused(fetch(*arguments, "--no-export"), *words)
    assert "GET" not in hub.requests


def test_an_address_without_encryption_in_the_environment_is_refused(efftam, tmp_path: Path):
    env = {"XDG_CACHE_HOME": str(tmp_path), "no_proxy": "*", "HF_ENDPOINT": "http://hub.example"}
    assert_refused(efftam("fetch", NAME, "--no-export", env=env), "is not encrypted", "https://")
