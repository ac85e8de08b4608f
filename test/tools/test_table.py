from __future__ import annotations

from efftam_ros.tools.common.terminal import table_lines


def test_numbers_are_aligned_right_and_gaps_are_dashes():
    lines = table_lines(
        ["name", "AO", "n"], [["car", 0.5, 10], ["bird", None, 9], ["x", float("nan"), "7.1"]], digits=2
    )
    assert lines == [
        "name    AO    n",
        "----  ----  ---",
        "car   0.50   10",
        "bird     -    9",
        "x        -  7.1",
    ]
    assert table_lines(["a", "bc"], []) == ["a  bc", "-  --"]
