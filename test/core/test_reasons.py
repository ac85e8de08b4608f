"""The table of reasons: every number has one meaning, and messages carry text and number together."""

import copy
import pickle
import re
import string
import subprocess
import sys
from pathlib import Path

import pytest

from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode

ROOT = Path(__file__).parents[2]
GAP = ReasonCode.IMAGE_GAP.reason(gap_s=1.25, max_gap=1.0)


def test_every_row_is_complete_and_fits_a_message():
    names = [code.name for code in ReasonCode]
    assert len(set(names)) == len(ReasonCode.__members__)  # no alias: a number has one meaning
    for code in list(ReasonCode)[1:]:
        assert 0 < code < 1 << 16
        for text in (code.template, code.meaning, code.remedy):
            assert text
            assert text == " ".join(text.split()), text
            assert "|" not in text  # a cell of docs/reasons.md


@pytest.mark.parametrize("code", list(ReasonCode)[1:], ids=lambda code: code.name)
def test_every_text_shows_its_values_in_one_line(code):
    fields = {name: spec for _, name, spec, _ in string.Formatter().parse(code.template) if name}
    values = {name: 1.5 if spec else "given" for name, spec in fields.items()}
    reason = code.reason(**values)
    assert reason.code is code
    assert reason
    assert "{" not in reason
    for name in fields:
        with pytest.raises(KeyError):
            code.reason(**{other: value for other, value in values.items() if other != name})


def test_a_reason_has_a_text_and_a_number_or_neither():
    assert not NO_REASON
    assert NO_REASON.code is ReasonCode.NONE
    for code, text in ((ReasonCode.NONE, "lost"), (ReasonCode.LOST, "")):
        with pytest.raises(ValueError, match="code"):
            Reason(code, text)


def test_a_reason_keeps_its_number_when_it_is_copied_sent_and_extended():
    for same in (copy.deepcopy(GAP), pickle.loads(pickle.dumps(GAP))):
        assert (same, same.code) == (GAP, ReasonCode.IMAGE_GAP)
    longer = GAP.with_detail("3 windows")
    assert longer.code is ReasonCode.IMAGE_GAP
    assert longer == f"{GAP}; 3 windows"


def test_an_error_raised_with_a_reason_keeps_it_and_another_one_gets_the_general_number():
    assert Reason.of(InputError(GAP), ReasonCode.IMAGE_REFUSED).code is ReasonCode.IMAGE_GAP
    plain = Reason.of(InputError("image step is 900 bytes"), ReasonCode.IMAGE_REFUSED)
    assert (plain, plain.code) == ("image step is 900 bytes", ReasonCode.IMAGE_REFUSED)
    assert Reason.of(InputError(), ReasonCode.IMAGE_REFUSED).code is ReasonCode.IMAGE_REFUSED


@pytest.mark.parametrize(
    ("number", "text", "code"),
    [
        (204, "no image", ReasonCode.IMAGE_GAP),
        (0, "", ReasonCode.NONE),
        (65_000, "of a newer release", ReasonCode.OTHER),
        (0, "of a node that sets no number", ReasonCode.OTHER),
        (204, "", ReasonCode.NONE),
    ],
)
def test_every_message_can_be_read(number, text, code):
    reason = Reason.read(number, text)
    assert (reason, reason.code) == (text, code)


@pytest.mark.parametrize(
    ("arguments", "path"), [((), "docs/reasons.md"), (("--message",), "msg/ReasonCode.msg")]
)
def test_page_and_ros_message_are_made_from_the_table(arguments, path):
    command = [sys.executable, str(ROOT / "scripts/reasons_page"), *arguments]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert made == (ROOT / path).read_text(), f"run ./scripts/reasons_page {' '.join(arguments)} > {path}"


def test_every_message_with_a_reason_has_its_number_beside_it():
    found = 0
    for path in [*ROOT.glob("msg/*.msg"), *ROOT.glob("srv/*.srv")]:
        lines = path.read_text().splitlines()
        for line, after in zip(lines, [*lines[1:], ""], strict=True):
            if re.match(r"string (reason|message)\b", line):
                found += 1
                assert after.startswith("uint16 reason_code"), f"{path.name}: {line}"
    assert found == 10
