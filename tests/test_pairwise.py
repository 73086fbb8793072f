"""What the fast tests leave out of a cross product is a third value, never a second."""

from itertools import combinations, product

import pytest

from tests.pairwise import covering, crossed


@pytest.mark.parametrize("sizes", [(3,), (2, 2, 2), (5, 6, 2, 2, 2), (1, 4, 3), (4, 4, 4, 4)])
def test_every_pair_of_values_is_covered(sizes):
    rows = covering(sizes)
    for first, second in combinations(range(len(sizes)), 2):
        met = {(row[first], row[second]) for row in rows}
        assert met == set(product(range(sizes[first]), range(sizes[second])))


def test_the_covering_is_small_and_always_the_same():
    assert len(covering((7, 9, 2, 2))) == 63  # 252 combinations, and 7 x 9 pairs at least
    assert len(covering((5, 6, 2, 2, 2))) <= 33
    assert covering((4, 3, 2)) == covering((4, 3, 2))


def test_one_parameter_alone_is_not_thinned():
    cases = crossed(n=[10, 20, 30]).args[1]
    assert [case.values for case in cases] == [(10,), (20,), (30,)]
    assert all(case.marks == () for case in cases)


def test_all_combinations_are_there_and_the_rest_is_slow():
    mark = crossed(a="xyz", b=[1, 2], c=[None, float])
    names, cases = mark.args
    assert names == ["a", "b", "c"]
    assert [case.values for case in cases] == list(product("xyz", [1, 2], [None, float]))
    fast = [case.values for case in cases if not case.marks]
    assert len(fast) == 6 == len({values[:2] for values in fast})
    assert all(mark.name == "slow" for case in cases for mark in case.marks)
