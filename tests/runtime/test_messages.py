"""One line for a person."""

from activehuber.runtime.messages import LONGEST_LINE, first_line


def test_a_long_message_is_cut_after_a_word():
    words = " ".join(["word"] * 200)
    line = first_line(f"{words}\nmore")
    assert line.endswith("word …") and len(line) <= LONGEST_LINE + 1
    assert first_line("x" * 300) == "x" * 300
    assert first_line("one\ntwo") == "one"
