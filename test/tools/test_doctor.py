"""`efftam doctor`: one page that is true of this machine."""

from __future__ import annotations

import itertools
import json
import platform
from pathlib import Path

import numpy as np
import pytest

from efftam_ros.runtime import pipeline
from efftam_ros.runtime.pipeline import BACKENDS, DEFAULT_BACKEND
from efftam_ros.tools import doctor


def test_the_page_names_what_runs_and_mends_what_does_not(efftam):
    result = efftam("doctor")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) < 70
    assert any("python" in line and platform.python_version() in line for line in lines)
    assert lines[-1] == f"The default back end ({DEFAULT_BACKEND}) can run here."
    for mark, following in itertools.pairwise(lines):
        if mark.strip().startswith(("--", "!!")):
            assert following.strip().startswith("->"), f"no remedy for: {mark}"


def test_json_has_every_back_end(efftam):
    report = json.loads(efftam("doctor", "--json").stdout)
    assert report["runs"] is True
    backends = {f["name"]: f for f in report["findings"] if f["section"] == "back ends"}
    assert set(backends) == set(BACKENDS)
    assert backends[DEFAULT_BACKEND]["state"] == "ok"
    for finding in backends.values():
        assert finding["state"] == "ok" or (finding["found"] and finding["remedy"])
    assert {f["name"]: f["found"] for f in report["findings"]}["numpy"] == np.__version__


def test_a_missing_shared_bundle_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    def broken() -> None:
        raise doctor.InputRefused(f"bundle file {tmp_path / 'x.onnx'} is missing; export it again")

    monkeypatch.setattr(pipeline, "default_bundle", broken)
    from efftam_ros.tools.cli import main

    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "x.onnx is missing" in text
    assert "can NOT run" in text


@pytest.mark.parametrize(
    ("environment", "state", "words"),
    [
        ({}, "absent", "not set"),
        ({"FASTRTPS_DEFAULT_PROFILES_FILE": "/nowhere.xml"}, "wrong", "does not exist"),
        ({"FASTRTPS_DEFAULT_PROFILES_FILE": __file__}, "ok", __file__),
        ({"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}, "ok", "not used"),
    ],
)
def test_the_fast_dds_profile(monkeypatch: pytest.MonkeyPatch, environment, state: str, words: str):
    for name in ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE", "RMW_IMPLEMENTATION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    finding = doctor.fastdds_profile()
    assert finding.state == state
    assert words in finding.found
