"""Heights of people from blobs of foreground: drawn people, groups, pieces and statues."""

import numpy as np
import pytest

from activehuber.crowd.perspective import drawn_heights, learn_heights, sightings

ROWS, COLUMNS = 240, 320


def test_who_is_upright_whole_and_alone_is_sighted():
    mask = np.zeros((ROWS, COLUMNS), np.uint8)
    mask[100:160, 50:70] = 1  # a person
    mask[100:130, 100:160] = 1  # a group
    mask[200:240, 200:215] = 1  # cut by the frame
    mask[30:34, 10:12] = 1  # a speck
    np.testing.assert_allclose(sightings(mask), [[160.0, 60.0, 60.0]])


def line_of(foot, top, bottom):
    return top + (bottom - top) * foot / ROWS


@pytest.mark.parametrize(("top", "bottom"), [(10, 80), (-60, 150), (40, 40)])
def test_the_line_is_that_of_the_people_and_not_of_what_else_moves(top, bottom, rng):
    foot = rng.uniform(110, ROWS - 2, 300)
    people = line_of(foot, top, bottom) * np.exp(0.05 * rng.normal(size=300))
    seen = [np.column_stack([foot, rng.uniform(0, COLUMNS, 300), people])]
    # As many pieces of people, groups, and a statue that is seen in every frame.
    seen.append(
        np.column_stack([foot, rng.uniform(0, COLUMNS, 300), rng.uniform(12, 120, 300)])
    )
    seen.append(np.tile([[150.0, 30.0, 130.0]], (5000, 1)))
    found = learn_heights(np.vstack(seen), ROWS)
    where = np.arange(120, ROWS)
    expected = line_of(where, top, bottom)
    assert found.shape == (ROWS,) and np.all(found > 0.0)
    assert np.median(np.abs(np.log(found[where] / expected))) < 0.12


def test_few_sightings_say_nothing(rng):
    few = np.column_stack(
        [rng.uniform(100, 200, 20), rng.uniform(0, 99, 20), np.full(20, 50.0)]
    )
    for seen in (few, np.empty((0, 3)), np.tile(few[:1], (1000, 1))):
        assert len(np.unique(learn_heights(seen, ROWS))) == 1


def test_bars_are_drawn_as_tall_as_people():
    image = np.zeros((ROWS, COLUMNS, 3), np.uint8)
    out = drawn_heights(image, np.full(ROWS, 50.0))
    assert not image.any()
    first = np.flatnonzero(out[:, : COLUMNS // 6].any(axis=(1, 2)))
    assert 50 <= np.ptp(first) + 1 <= 54
