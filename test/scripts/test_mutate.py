"""`scripts/mutate`: seeded faults in a copy of a checkout, and which of them its tests catch."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

MUTATE = Path(__file__).parents[2] / "scripts" / "mutate"
SOURCE = '''"""Sizes."""


class Tally:
    def __init__(self):
        self.count, self.names = 0, []

    def add(self, name, size, most=4):
        """A name that fits is kept."""
        if size <= most and name:
            self.names.append(name)
            self.count += 1
        return pair(size - 1, most)


def pair(first, second):
    return {"first": first, "second": second}
'''
WHOLE = """
from box.tally import Tally, pair


def test_everything():
    tally = Tally()
    assert (tally.count, tally.names) == (0, [])
    assert tally.add("a", 4) == {"first": 3, "second": 4}
    assert tally.add("", 1) == {"first": 0, "second": 4}
    assert tally.add("b", 5, 4) == {"first": 4, "second": 4}
    assert (tally.count, tally.names) == (1, ["a"])
"""


@pytest.fixture
def checkout(tmp_path):
    """A repository with one module and its tests; `ignored/` is not part of it."""
    root = tmp_path / "checkout"
    for name, text in {
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
        ".gitignore": "ignored/\n__pycache__/\n",
        "box/tally.py": SOURCE,
        "test/test_tally.py": WHOLE,
        "ignored/large.bin": "0",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def environment(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return {
        "PATH": "/usr/bin:/bin",
        "TMPDIR": str(scratch),
        "HOME": str(tmp_path),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }, scratch


def mutate(checkout, *arguments):
    env, scratch = environment(checkout.parent)
    command = [sys.executable, str(MUTATE), "box/tally.py", *arguments]
    result = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
    assert (checkout / "box/tally.py").read_text() == SOURCE
    assert list(scratch.iterdir()) == []
    return result


def test_the_same_seed_gives_the_same_faults_and_another_seed_others(checkout):
    first, again = (mutate(checkout, "--list", "--count", "6", "--seed", "3").stdout for _ in range(2))
    assert first == again
    assert first.count("box/tally.py:") == 6
    assert mutate(checkout, "--list", "--count", "6", "--seed", "4").stdout != first


def test_every_kind_of_fault_is_found_and_gives_python(checkout):
    listed = mutate(checkout, "--list", "--count", "100").stdout
    for change in (
        "+        if size < most and name:",
        "+        if size <= most or name:",
        "+        if not (size <= most and name):",
        "+            pass",
        "+        return pair(size + 1, most)",
        "+        return pair(size - 2, most)",
        "+        return pair(most, size - 1)",
        '+    return {"first": second, "second": first}',
        "+            self.count.append(name)",
    ):
        assert change in listed.splitlines() or f"    {change}" in listed.splitlines()
    assert '"""' not in listed


def test_thorough_tests_catch_every_fault(checkout):
    result = mutate(checkout, "--count", "3", "--seed", "1")
    assert result.returncode == 0, result.stdout
    assert result.stdout.count(" caught in ") == 3
    assert "3 of 3 faults caught (100%), seed 1" in result.stdout


def test_a_survivor_is_shown_with_its_place_and_change(checkout):
    (checkout / "test/test_tally.py").write_text("def test_nothing():\n    import box.tally\n")
    result = mutate(checkout, "--count", "1")
    assert result.returncode == 1
    assert result.stdout.count("SURVIVED in") == 1
    assert "0 of 1 faults caught (0%), seed 0" in result.stdout
    assert "\n    -" in result.stdout
    assert "\n    +" in result.stdout


def test_a_fault_that_hangs_the_tests_is_caught(checkout):
    (checkout / "box/tally.py").write_text("def wait():\n    while id(3) != id(3):\n        pass\n")
    (checkout / "test/test_tally.py").write_text(
        "from box.tally import wait\n\n\ndef test_it():\n    wait()\n"
    )
    env, _ = environment(checkout.parent)
    script = MUTATE.read_text().replace("SLOWEST, LEAST_S = 10.0, 20.0", "SLOWEST, LEAST_S = 0.0, 5.0")
    assert script != MUTATE.read_text()
    command = [sys.executable, "-c", script, "box/tally.py", "--count", "1"]
    result = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "+    while id(3)" in result.stdout


def interruptible():
    """Ctrl-C reaches the process also where the tests run in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_leaves_the_checkout_and_nothing_else(checkout):
    env, scratch = environment(checkout.parent)
    command = [sys.executable, "-u", str(MUTATE), "box/tally.py", "--count", "30"]
    process = subprocess.Popen(
        command, cwd=checkout, env=env, stdout=subprocess.PIPE, text=True, preexec_fn=interruptible
    )
    assert "caught in" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=30)[0]
    assert process.returncode == 130
    assert "faults caught" in rest
    assert (checkout / "box/tally.py").read_text() == SOURCE
    assert list(scratch.iterdir()) == []


def test_tests_that_fail_anyway_say_nothing_about_faults(checkout):
    (checkout / "test/test_tally.py").write_text("def test_broken():\n    assert False\n")
    result = mutate(checkout, "--count", "2")
    assert result.returncode == 2
    assert "fails without any fault" in result.stderr


@pytest.mark.parametrize("arguments", [["box/none.py"], ["/etc/hosts"]])
def test_what_is_no_file_of_the_checkout_is_refused(checkout, arguments):
    result = mutate(checkout, *arguments)
    assert result.returncode == 2
    assert arguments[0] in result.stderr
