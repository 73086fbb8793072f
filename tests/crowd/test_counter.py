"""From measures to counts: what holds everywhere, stretches left out, doubts, new ground."""

from dataclasses import replace

import numpy as np
import pytest

from activehuber import HLRegressor
from activehuber.crowd import counter as module
from activehuber.crowd.background import find_backgrounds, with_level
from activehuber.crowd.counter import Between, Scale, evenly, fit_counter
from activehuber.crowd.features import Described, describe_frames
from activehuber.crowd.frames import open_frames, write_images
from activehuber.crowd.perspective import learn_heights
from activehuber.crowd.scene import make_scene
from activehuber.crowd.synthetic import synthetic_camera
from activehuber.runtime.messages import TableError

N_FRAMES, N_COUNTED, N_WRONG = 300, 60, 6
SCENE = make_scene(60, 80)
GRID, BANDS = (3, 4), 15


def crowd(counts, rng, columns=slice(None), noise=0.1):
    """Frames with so many people somewhere in some columns of cells; shapes as described."""
    cells, feet = np.zeros((len(counts), 8, *GRID)), np.zeros((len(counts), 8, BANDS))
    size = rng.uniform(20.0, 60.0, 8)
    places = np.arange(GRID[0] * GRID[1]).reshape(GRID)[:, columns].ravel()
    for i, count in enumerate(counts):
        for place in rng.choice(places, int(count)):
            person = size * (1.0 + noise * rng.normal(size=8))
            cells[i, :, *np.unravel_index(place, GRID)] += person
            feet[i, :, place % BANDS] += person
    numbers = np.arange(1, len(counts) + 1)
    return Described(numbers, cells.astype("f"), feet.astype("f"), np.empty((0, 3)))


def waves(n=120):
    return np.rint(5.0 + 3.0 * np.sin(np.arange(n) / 9.0))


def every_third(truth):
    counts = np.full((len(truth), 1), np.nan)
    counts[::3, 0] = truth[::3]
    return counts


def test_columns_of_x_are_what_the_views_take(rng):
    described = crowd(waves(), rng)
    measures = described.measures(SCENE)
    scale = Scale.of(measures)
    X, views = scale.rows(measures), scale.views()
    assert [view.name for view in views] == ["totals", "places", "cells"]
    assert [view.kernel for view in views] == ["linear", "linear", "rbf"]
    parts = [X[:, view.columns] for view in views]
    assert sum(part.shape[1] for part in parts) == X.shape[1]
    np.testing.assert_allclose(parts[0][:, 0].mean(), 1.0)
    np.testing.assert_allclose(np.mean(np.sum(parts[1] ** 2, axis=1)), 1.0)
    gaps = parts[2][:, None] - parts[2][None]
    np.testing.assert_allclose(np.mean(np.sum(gaps**2, axis=2)), 1.0)
    # An empty scene has no totals and no places.
    empty = replace(described, cells=0 * described.cells, feet=0 * described.feet)
    empty = scale.rows(empty.measures(SCENE))
    assert not empty[:, : views[1].columns.stop].any()


def test_what_one_person_adds_holds_where_nobody_was_counted(rng):
    """Counted frames have people on the left alone; later ones on the right."""
    truth, later = waves(80), waves(90)[10:]
    where = rng.spawn(1)[0]
    seed = where.integers(1000)
    left = crowd(truth, np.random.default_rng(seed), slice(0, 2))
    right = crowd(later, np.random.default_rng(seed), slice(2, 4))
    fitted = fit_counter(left, SCENE, truth[:, None], ("count",))
    fitted = replace(fitted, between=None)
    here, there = fitted.count(left, SCENE), fitted.count(right, SCENE)
    assert np.mean(np.abs(here["count"] - truth)) < 0.3
    mean = np.mean(np.abs(later - truth.mean()))
    assert np.mean(np.abs(there["count"] - later)) < 0.5 * mean
    # It is said that the ground is new, and intervals are wider there.
    assert np.all(here["new_ground"] == 0.0) and np.all(there["new_ground"][later > 0] == 1.0)
    assert np.mean(there["upper"] - there["count"]) > 1.5 * np.mean(
        here["upper"] - here["count"]
    )


def test_the_error_is_that_of_stretches_left_out(rng, monkeypatch):
    truth = waves(100)
    described, counts = crowd(truth, rng, noise=0.6), truth[:, None]
    monkeypatch.setattr(module, "PRIOR_WORTH", 0.0)
    fitted = fit_counter(described, SCENE, counts, ("count",))
    model, errors, means = fitted.model, [], []
    X = fitted.scale.rows(described.measures(SCENE))
    stretches = np.arange(100) * 4 // 100
    for stretch in range(4):
        out = stretches == stretch
        # The weight of a count is 1 over their number: with fewer of them alpha grows.
        params = model.get_params(deep=False) | {"alpha": model.alpha * 100 / 75}
        other = HLRegressor(**params).fit(X[~out], truth[~out])
        errors += list(truth[out] - other.predict(X[out]))
        means += list(truth[out] - truth[~out].mean())
    np.testing.assert_allclose(fitted.error, np.mean(np.abs(errors)), rtol=0.05)
    # That is in closed form: labels that are bound stay so.
    np.testing.assert_allclose(fitted.mean_error, np.mean(np.abs(means)))
    # Before much has been seen a count by foreground is not believed to be exact.
    monkeypatch.setattr(module, "PRIOR_WORTH", 3.0)
    careful = fit_counter(described, SCENE, counts, ("count",))
    prior = module.PRIOR_ERROR * truth.mean() / module.SPREAD
    assert min(fitted.error, prior) < careful.error < max(fitted.error, prior)


def test_independent_frames_are_fewer_than_frames():
    slow, fast = waves(120), np.tile([1.0, 2.0], 60)
    assert module._independent(fast) == 120
    assert 8 < module._independent(slow) < 24
    assert module._independent(np.full(9, 4.0)) == 1.0


def test_between_counted_frames_reaches_as_far_as_these_are_apart():
    between = Between(HLRegressor(), np.array([10, 20, 30, 60]), 0.0)
    near = between.reaches(np.arange(1, 80))
    assert np.flatnonzero(near).tolist() == [*range(-1, 40), *range(49, 70)][1:]


def test_wrong_counts_are_doubted_worst_first_and_others_are_not(rng):
    truth = waves(150)
    described, counts = crowd(truth, rng), every_third(truth)
    counts[[9, 60, 90], 0] += [12.0, 6.0, 25.0]
    fitted = fit_counter(described, SCENE, counts, ("count",))
    assert fitted.flagged.tolist() == [91, 10, 61]
    assert np.flatnonzero(np.isnan(fitted.labels[:, 0])).tolist() == [3, 20, 30]
    clean = fit_counter(described, SCENE, every_third(truth), ("count",))
    np.testing.assert_allclose(
        fitted.count(described, SCENE)["count"],
        clean.count(described, SCENE)["count"],
        atol=0.5,
    )


def test_what_is_doubted_lies_outside_of_its_own_interval(rng):
    truth = waves(150)
    described, counts = crowd(truth, rng, noise=0.4), every_third(truth)
    counts[3::18, 0] += rng.integers(-3, 9, len(counts[3::18]))
    counts = np.maximum(counts, 0.0)
    fitted = fit_counter(described, SCENE, counts, ("count",))
    table, at = fitted.count(described, SCENE), fitted.flagged - 1
    inside = (table["lower"] <= counts[:, 0]) & (counts[:, 0] <= table["upper"])
    assert len(at) and not inside[at].any()


def test_a_few_counts_of_another_time_are_worth_much(rng):
    """People of another build, as in another light: the model is off until some are counted."""
    truth, seed = waves(120), 5
    described = crowd(truth, np.random.default_rng(seed))
    later = crowd(truth[::-1], np.random.default_rng(seed))
    later = replace(later, cells=1.6 * later.cells, feet=1.6 * later.feet)
    fitted = fit_counter(described, SCENE, truth[:, None], ("count",))
    few = np.full((120, 1), np.nan)
    few[5::12, 0] = truth[::-1][5::12]
    again = fitted.counting(later, SCENE, few)
    before, after = (
        np.mean(np.abs(each.count(later, SCENE)["count"] - truth[::-1]))
        for each in (replace(fitted, between=None), again)
    )
    assert after < 0.6 * before
    assert len(again.labels) == 130 and len(again.flagged) == 0
    few[5, 0] = 60.0
    assert fitted.counting(later, SCENE, few).flagged.tolist() == [6]


def test_frames_that_cannot_be_read_have_no_count_and_harm_no_other(rng):
    truth = waves(60)
    described = crowd(truth, rng)
    fitted = fit_counter(described, SCENE, every_third(truth), ("count",))
    cells, feet = described.cells.copy(), described.feet.copy()
    cells[[0, 31]] = feet[[0, 31]] = np.nan
    before = fitted.count(described, SCENE)
    after = fitted.count(replace(described, cells=cells, feet=feet), SCENE)
    for name, values in after.items():
        assert np.flatnonzero(np.isnan(values)).tolist() == [0, 31]
        np.testing.assert_allclose(np.delete(values, [0, 31]), np.delete(before[name], [0, 31]))
    gone = replace(described, cells=cells * np.nan, feet=feet * np.nan)
    with pytest.raises(TableError, match="0 frames can be read and have all their counts"):
        fit_counter(gone, SCENE, every_third(truth), ("count",))


def test_frames_that_are_all_alike_get_the_usual_count(rng):
    truth = waves(60)
    described = crowd(np.full(60, 3), rng)
    described = replace(
        described, cells=0 * described.cells + 1.0, feet=0 * described.feet + 1.0
    )
    table = fit_counter(described, SCENE, every_third(truth), ("count",)).count(
        described, SCENE
    )
    np.testing.assert_allclose(table["count"], truth[::3].mean(), atol=1.0)


def test_nobody_anywhere_is_no_error(rng):
    described = crowd(np.zeros(40), rng)
    fitted = fit_counter(described, SCENE, np.zeros((40, 1)), ("count",))
    np.testing.assert_allclose(fitted.count(described, SCENE)["count"], 0.0, atol=1e-6)
    assert len(fitted.flagged) == 0


def test_wider_intervals_cover_more(rng):
    truth = waves()
    described = crowd(truth, rng, noise=0.4)
    wide = [
        fit_counter(described, SCENE, every_third(truth), ("count",), coverage=c)
        for c in (0.5, 0.95)
    ]
    low, high = (np.mean(each.count(described, SCENE)["upper"]) for each in wide)
    assert low < high


def test_places_are_evenly_spread():
    assert evenly(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert evenly(101, 5).tolist() == [0, 25, 50, 75, 100]


# --- a camera nobody tuned for ----------------------------------------------------------


@pytest.fixture(scope="module")
def camera(tmp_path_factory):
    """A small, slow camera with few people, without region and perspective, described."""
    clip = synthetic_camera(
        N_FRAMES, height=144, width=192, fps=2.0, people=(2, 8), random_state=1
    )
    folder = tmp_path_factory.mktemp("frames")
    write_images(folder, clip.images())
    frames = open_frames(folder)
    scene = make_scene(frames.height, frames.width, motion=True)

    def silent(done, total):
        pass

    backgrounds = find_backgrounds(frames, scene, silent)
    scene = with_level(frames, scene, backgrounds)
    described = describe_frames(frames, scene, backgrounds, silent)
    heights = learn_heights(described.seen, 144)
    return clip, replace(scene, person=np.tile(heights[:, None], 192)), described


def counted_and_wrong():
    order = np.random.default_rng(1).permutation(N_FRAMES)[:N_COUNTED]
    return np.sort(order), order[:N_WRONG]


@pytest.fixture(scope="module")
def one_target(camera):
    clip, scene, described = camera
    counted, wrong = counted_and_wrong()
    counts = np.full((N_FRAMES, 1), np.nan)
    counts[counted, 0] = clip.counts[counted]
    counts[wrong] += 12
    still = replace(described, cells=described.cells[:, :8], feet=described.feet[:, :8])
    scene, told = replace(scene, motion=False), []
    fitted = fit_counter(still, scene, counts, ("count",), report=told.append)
    return clip, scene, still, counts, fitted, told


def test_uncounted_frames_are_counted(one_target):
    clip, scene, described, counts, fitted, told = one_target
    table = fitted.count(described, scene)
    assert list(table) == ["count", "lower", "upper", "new_ground"]
    rest, truth = np.isnan(counts[:, 0]), clip.counts
    error = np.mean(np.abs(table["count"] - truth)[rest])
    constant = np.mean(np.abs(np.median(truth[rest]) - truth[rest]))
    covered = np.mean(((table["lower"] <= truth) & (truth <= table["upper"]))[rest])
    assert error < 0.65 * constant
    assert 0.5 * error < fitted.between.error < 2.0 * error
    assert covered > 0.8
    # Not by being of no use: narrower than the range of counts.
    assert np.mean(table["upper"] - table["lower"]) < 0.8 * np.ptp(truth)
    assert np.all(table["lower"] >= 0.0) and told


def test_wrong_counts_are_flagged(one_target):
    *_, fitted, _ = one_target
    _, wrong = counted_and_wrong()
    assert set(wrong + 1) <= set(fitted.flagged[: N_WRONG + 1])
    assert len(fitted.flagged) <= N_WRONG + 4


def test_later_frames_are_counted_better_than_by_the_mean(camera):
    clip, scene, described = camera
    scene = replace(scene, motion=False)
    still = replace(described, cells=described.cells[:, :8], feet=described.feet[:, :8])
    for counted in (np.arange(150), np.arange(150, 300)):
        counts = np.full((N_FRAMES, 1), np.nan)
        counts[counted, 0] = clip.counts[counted]
        fitted = fit_counter(still, scene, counts, ("count",))
        rest, table = np.isnan(counts[:, 0]), fitted.count(still, scene)
        error = np.mean(np.abs(table["count"] - clip.counts)[rest])
        mean = np.mean(np.abs(clip.counts[rest] - clip.counts[counted].mean()))
        assert error < 0.7 * mean
        assert 0.5 * error < fitted.error < 2.5 * error
        covered = (table["lower"] <= clip.counts) & (clip.counts <= table["upper"])
        assert covered[rest].mean() > 0.8


def test_left_and_right_are_two_targets_of_one_count(camera):
    clip, scene, described = camera
    counted, wrong = counted_and_wrong()
    counts = np.full((N_FRAMES, 2), np.nan)
    counts[counted] = np.stack([clip.left, clip.right], axis=1)[counted]
    counts[wrong, 0] += 12
    # A frame with one of the two is of use too.
    counts[counted[N_WRONG], 1] = np.nan
    fitted = fit_counter(described, scene, counts, ("left", "right"))
    table = fitted.count(described, scene)
    assert list(table)[:4] == ["count", "lower", "upper", "left"]
    np.testing.assert_allclose(table["count"], table["left"] + table["right"])
    assert set(wrong + 1) <= set(fitted.flagged)
    rest = np.isnan(counts).all(axis=1)
    for name, truth in (("left", clip.left), ("right", clip.right), ("count", clip.counts)):
        prefix = "" if name == "count" else f"{name}_"
        low, high = table[f"{prefix}lower"][rest], table[f"{prefix}upper"][rest]
        error = np.mean(np.abs(table[name] - truth)[rest])
        constant = np.mean(np.abs(np.median(truth[rest]) - truth[rest]))
        covered = np.mean((low <= truth[rest]) & (truth[rest] <= high))
        assert error < 0.9 * constant and covered > 0.8
    # What moves tells which of the two it is: better than the usual share of all.
    share = np.nanmedian(clip.left[counted] / clip.counts[counted])
    guessed = np.mean(np.abs(share * table["count"] - clip.left)[rest])
    assert np.mean(np.abs(table["left"] - clip.left)[rest]) < 0.9 * guessed
