"""CSV that no spreadsheet takes for formulas."""

import numpy as np
import pytest

from activehuber.data.writing import csv_text


@pytest.mark.parametrize(
    "text",
    [
        *["=1+1", "+x", "-x", "@f", "\tx", "\rx", "-1+2", "＝x", "+"],
        # Behind what a spreadsheet may drop: marks of byte order, spaces, controls, fillers.
        *["\ufeff=1+1", " =1", "\u200b\u2060@f", "\xa0\u3000+x", "\x00-x", "\u2028=x"],
        *["\ufe0f=x", "\u3164=x", "\u202e=x", "\ufeff \t\ufeff=x", "\ufeff-1", " \n=x"],
        # Other forms of the same characters.
        *["﹦x", "⁼x", "﹢x", "﹣x", "−x", "﹫x", "\ufeff＝x"],
    ],
)
def test_formulas_are_neutralised(text):
    line = csv_text(["a"], [[text]]).split("\n", 1)[1]
    assert line.strip().strip('"').startswith("'")
    assert csv_text([text], [[]]).strip().strip('"').startswith("'")


@pytest.mark.parametrize(
    "text", ["-3.5", "+2", "-1e-7", "x=1", "1-2", " -3", " x", "\ufeffx", "·", "ä=1", "(=1)"]
)
def test_numbers_and_other_text_are_not(text):
    assert csv_text(["a"], [[text]]) == f"a\n{text}\n"


def test_numbers_in_csv():
    values = [1.0, -2.5, 1 / 3, 1e-9, np.nan, None, 123456789.0]
    lines = csv_text(["x", "y"], [values, ["z"] * 7]).split("\n")
    assert lines[1:-1] == [
        "1,z", "-2.5,z", "0.3333333,z", "1e-09,z", ",z", ",z", "1.234568e+08,z"
    ]  # fmt: skip
