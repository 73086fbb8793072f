"""Rules for plain values: what each takes, what it refuses, and the word it says."""

import numpy as np
import pytest

from activehuber.persistence.schema import (
    Header,
    array,
    distinct,
    either,
    fits,
    flag,
    items,
    nothing,
    number,
    one_of,
    optional,
    record,
    sequence,
    shown,
    text,
    whole,
)

F = np.dtype("<f8")


def takes(rule, value, **sizes):
    """Whether a rule takes a value."""
    try:
        rule(value, "it", dict(sizes))
    except ValueError as error:
        assert str(error).startswith("it")
        return False
    return True


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (nothing, [None], [0, False, ""]),
        (flag, [True, False, np.True_], [0, 1, None, "true"]),
        (text, ["", "naïve", "日"], [None, 3, b"x", "\ud800", "a\udfff", "\udc00"]),
        (one_of("a", "b"), ["a", "b"], ["c", None, ["a"], "ab"]),
        (number(), [0, 1.5, -3, 2**53, -(2**53), np.float64(2.0)], [True, "1", None]),
        (number(), [1e308], [np.inf, -np.inf, np.nan, 2**53 + 1, -(2**53) - 1, 1j]),
        (number(finite=False), [np.inf, np.nan, 0.0], [None, 2**60]),
        (number(0.0, finite=False), [np.nan, np.inf, 0.0], [-1e-9]),
        (number(0.0, 1.0), [0.0, 1.0, 0.5, 0, 1], [-1e-9, 1.0 + 1e-9]),
        (number(0.0, above=True), [1e-300, 5.0], [0.0, 0, -1.0]),
        (number(-1.0, above=True), [0.0], [-1.0]),
        (whole(), [0, 1, 2**31 - 1, np.int64(3)], [-1, 2**31, 1.0, True, None]),
        (whole(3, 5), [3, 4, 5], [2, 6]),
        (items(number(), 2), [[1, 2], (1, 2)], [[1], [1, 2, 3], [1, "2"], "12", None]),
        (items(number()), [[], list(range(200))], [{1: 2}]),
        (
            sequence(flag, text),
            [[True, "a"], (False, "")],
            [[True], ["a", True], [True, "a", 1]],
        ),
        (optional(flag), [None, True], [0, "x"]),
        (either(nothing, whole()), [None, 4], [-1, "x"]),
    ],
)
def test_rules(rule, good, bad):
    assert [value for value in good if not takes(rule, value)] == []
    assert [value for value in bad if takes(rule, value)] == []


@pytest.mark.parametrize(
    ("rule", "value", "words"),
    [
        (number(0.0, 1.0), 2.0, r"it must be a number from 0 to 1, got 2\.0"),
        (number(0.0, above=True), 0.0, r"it must be a number above 0, got 0\.0"),
        (number(high=3.0), 4.0, r"it must be a number to 3, got 4\.0"),
        (number(), "x", r"it must be a number, got 'x'"),
        (whole(1, 9), 0, "it must be a whole number from 1 to 9 that fits the rest, got 0"),
        (items(flag, "n"), 3, "it must be a list of n, got 3"),
        (items(flag), [1], r"it\[0\] must be true or false, got 1"),
        (sequence(flag, text), [], "it must be a list of 2, got a list of 0"),
        (record(a=flag), [], "it must be a dict, got a list of 0"),
        (record(a=flag), {}, "it: 'a' is missing"),
        (record(a=flag), {"a": True, "b": 1}, "it: 'b' is unknown"),
        (record(a=flag), {"a": 1}, r"it\.a must be true or false"),
        (one_of("a", "b"), "c", "it must be one of 'a', 'b', got 'c'"),
        (
            array("f", "n", 2),
            np.zeros((3, 3)),
            r"it must be an array of kind f of shape \(3, 2\), got an",
        ),
        (array("fi", 2), "x", r"it must be an array of kind f or i of shape \(2\), got 'x'"),
    ],
)
def test_what_is_said(rule, value, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        rule(value, "it", {})


def test_the_first_of_a_name_says_its_size():
    sizes = {}
    array("f", "n", "d")(np.zeros((3, 2)), "X", sizes)
    assert sizes == {"n": 3, "d": 2}
    assert takes(array("b", "n"), np.zeros(3, dtype=bool), **sizes)
    assert not takes(array("b", "n"), np.zeros(4, dtype=bool), **sizes)
    assert takes(whole(size="d"), 2, **sizes) and not takes(whole(size="d"), 3, **sizes)
    assert takes(items(flag, "n"), [True] * 3, **sizes)
    assert not takes(items(flag, "n"), [True] * 2, **sizes)
    assert fits(range(2, 4), 3, {}) and not fits(range(2, 4), 4, {})
    assert fits(5, 5, {}) and not fits(5, 6, {})


def test_sizes_of_items_and_of_tries_are_their_own():
    sizes = {}
    items(array("f", "k"))([np.zeros(2), np.zeros(3)], "it", sizes)
    assert sizes == {}
    either(sequence(array("f", "k"), nothing), array("f", "k"))(np.zeros(4), "it", sizes)
    assert sizes == {"k": 4}
    either(array("f", "m"), nothing)(np.zeros(2), "it", sizes)
    assert sizes == {"k": 4, "m": 2}


@pytest.mark.parametrize(
    ("options", "good", "bad"),
    [
        ({}, [[], [1.0, -1e300]], [[np.nan], [1.0, np.inf]]),
        ({"nan": True}, [[np.nan, 1.0], [np.nan]], [[np.inf], [np.nan, -np.inf]]),
        ({"inf": True}, [[np.inf, 1.0, -np.inf]], []),
        ({"nan": True, "inf": True}, [[np.nan, np.inf, 0.0]], []),
        ({"low": 0.0}, [[0.0, 5.0]], [[-1e-9, 1.0], [5.0, -1.0]]),
        ({"high": 1.0}, [[-9.0, 1.0]], [[0.0, 1.1], [2.0, 0.0]]),
        ({"low": 0.0, "high": 1.0}, [[0.0, 1.0]], [[-1.0, 0.5], [0.5, 2.0]]),
        ({"nan": True, "low": 0.0}, [[np.nan, 0.0]], [[np.nan, -1.0]]),
    ],
)
def test_numbers_of_an_array(options, good, bad):
    rule = array("f", range(10), **options)
    assert [v for v in good if not takes(rule, np.array(v, dtype=float))] == []
    assert [v for v in bad if takes(rule, np.array(v, dtype=float))] == []


def test_kinds_and_dimensions_of_an_array():
    rule = array("if", 2)
    assert takes(rule, np.zeros(2)) and takes(rule, np.zeros(2, dtype=int))
    assert not takes(rule, np.zeros(2, dtype=bool)) and not takes(rule, np.zeros((2, 1)))
    assert not takes(rule, [0.0, 0.0]) and not takes(rule, np.zeros(3))
    assert takes(array("U", 1), np.array(["x"])) and not takes(array("f", 1), np.array(["x"]))
    assert not takes(array("i", 1, low=0), np.array([-1]))
    assert not takes(array("u", 1, high=3.0), np.array([4], dtype=np.uint8))


def test_numbers_that_are_still_in_their_file_are_not_looked_at():
    header = Header(F, (2, 3))
    assert header.count == 6 and Header(F, ()).count == 1
    assert takes(array("f", 2, 3, low=0.0), header)
    assert not takes(array("f", 3, 2), header) and not takes(array("i", 2, 3), header)
    assert shown(header) == "an array of float64 of shape (2, 3)"


def test_a_record_is_looked_at_in_its_order_and_then_as_a_whole():
    seen = []

    def noting(name):
        return lambda value, where, sizes: seen.append((name, where))

    rule = record(noting("also"), b=noting("b"), a=noting("a"))
    rule({"a": 1, "b": 2}, "it", {})
    assert seen == [("b", "it.b"), ("a", "it.a"), ("also", "it")]


def test_long_values_are_cut_and_copies_found():
    assert shown("x" * 57) == repr("x" * 57)
    assert shown("x" * 58) == f"'{'x' * 58}'…"
    assert len(shown("x" * 500)) == 61
    assert shown({1: 2}) == "a dict of 1" and shown((1, 2)) == "a tuple of 2"
    distinct(["a", "b"], "it")
    with pytest.raises(ValueError, match="it has something twice"):
        distinct(["a", "a"], "it")
