"""Every pair of values in the fast tests, every combination in the slow ones."""

from itertools import combinations, product

import pytest


def covering(sizes):
    """Rows of indices in which every two values of every two parameters meet.

    Greedy: always the combination with most pairs that have not met, the first of equals. Few
    bugs need three values at once, and rows are far fewer than combinations: about the
    product of the two largest sizes.
    """

    def pairs(row):
        return set(combinations(enumerate(row), min(2, len(row))))

    rows = {row: pairs(row) for row in product(*map(range, sizes))}
    to_meet, found = set().union(*rows.values()), []
    while to_meet:
        best = max(rows, key=lambda row: len(rows[row] & to_meet))
        to_meet -= rows[best]
        found.append(best)
    return found


def crossed(**values):
    """Parametrise by all combinations; those that no pair needs are marked slow."""
    lists = [list(each) for each in values.values()]
    fast = set(covering([len(each) for each in lists]))
    cases = [
        pytest.param(
            *(each[index] for each, index in zip(lists, row, strict=True)),
            marks=() if row in fast else pytest.mark.slow,
        )
        for row in product(*(range(len(each)) for each in lists))
    ]
    return pytest.mark.parametrize(list(values), cases)
