"""The README's example prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_60_second_example_prints_its_output():
    text = README.read_text()
    code, printed = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.S).groups()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    assert out.getvalue() == printed


def test_the_blocks_run_one_after_the_other():
    """As someone pastes them, in their order."""
    names = {}
    for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.S):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "README.md", "exec"), names)
    assert set(names["model"].__dict__) >= {"removed_", "threshold_"}
