"""The images of docker/, read as text: what they promise of users, versions, secrets and files."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "docker").glob("Dockerfile*"))
SECRET = re.compile(r"(?i)(password|passwd|secret|token|api_?key|BEGIN [A-Z ]*PRIVATE)")

pytestmark = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


def instructions(path: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", path.read_text()))
    return [
        (name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)
    ]


def of(path: Path, name: str) -> list[str]:
    return [rest for found, rest in instructions(path) if found == name]


def test_the_image_that_runs_is_not_the_one_that_builds_and_has_no_compiler(path: Path):
    stages = of(path, "FROM")
    assert len(stages) >= 2
    last = path.read_text().rpartition("\nFROM ")[2]
    assert "--from=build" in last
    assert not re.search(r"build-essential|colcon build|cmake", last)


def test_bases_have_a_version(path: Path):
    named = [rest.partition("=")[2] for rest in of(path, "ARG") if rest.startswith("BASE")]
    for base in (*of(path, "FROM"), *named):
        assert not re.search(r":latest\b", base)
        assert ":" in base or base.split()[0] in ("ros", "${BASE}"), base


def test_it_runs_as_a_user_by_number_whoever_that_is(path: Path):
    user = instructions(path)[[name for name, _ in instructions(path)].index("USER")][1]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert "mkdir -m 1777 /data" in path.read_text()
    assert not re.search(r"useradd|chown|sudo", path.read_text())


def test_all_that_is_written_goes_to_the_volume(path: Path):
    assert of(path, "VOLUME") == ["/data"]
    settings = dict(pair.split("=", 1) for line in of(path, "ENV") for pair in shlex.split(line))
    assert settings["HOME"] == "/data"
    assert settings["ROS_LOG_DIR"].startswith("/data/")
    assert settings["PYTHONDONTWRITEBYTECODE"] == "1"


def test_no_secret_is_built_in(path: Path):
    for name in ("ARG", "ENV", "RUN", "COPY"):
        for rest in of(path, name):
            assert not SECRET.search(rest), rest


def test_what_is_copied_exists(path: Path):
    for rest in of(path, "COPY"):
        *sources, _ = rest.split()
        if not sources[0].startswith("--from"):
            assert [source for source in sources if not (ROOT / source).exists()] == []


def test_apt_leaves_no_lists_and_recommends_nothing(path: Path):
    for rest in of(path, "RUN"):
        if "apt-get install" in rest:
            assert rest.count("apt-get install") == rest.count("--no-install-recommends")
            assert rest.endswith("rm -rf /var/lib/apt/lists/*") or "echo" in rest


def test_its_entry_is_a_script_that_bash_can_read(path: Path):
    entry = ROOT / "docker" / "entrypoint.sh"
    assert of(path, "ENTRYPOINT") == ['["/entrypoint.sh"]']
    assert entry.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", entry], check=False).returncode == 0
    assert 'exec "$@"' in entry.read_text()


def test_a_release_builds_it_and_starts_it_read_only_as_another_user(path: Path):
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    job = release["jobs"]["images"]
    assert release["jobs"]["release"]["needs"] == "images"
    assert f"docker/{path.name}" in {one["file"] for one in job["strategy"]["matrix"]["include"]}
    steps = " ".join(step.get("run", "") for step in job["steps"])
    for words in ("docker build", "--read-only", "--user 4321:4321", "efftam doctor"):
        assert words in steps
