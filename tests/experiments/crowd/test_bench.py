"""The bench of the counter: what methods may see, how they are scored, what is said of it."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.io import savemat
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

from activehuber.crowd.features import Described
from activehuber.crowd.frames import write_images
from activehuber.crowd.preparation import KernelFeatures, Preparation, Scaling
from activehuber.crowd.synthetic import synthetic_camera
from activehuber.crowd.temporal import Components
from activehuber.runtime.messages import TableError
from experiments.crowd import bench, measures, tables, tasks
from experiments.paper import data
from experiments.paper.command import write_outcome
from experiments.paper.files import MissingDataError
from experiments.paper.outcome import Run
from experiments.paper.protocol import Scored

N_FRAMES, N_TRAIN, SIZE = 120, 80, 25


@pytest.fixture(scope="module")
def clip():
    return synthetic_camera(N_FRAMES, height=90, width=120, people=(2, 12), random_state=3)


@pytest.fixture(scope="module")
def camera(clip, tmp_path_factory):
    """A folder laid out as that of Mall; maps are twice the size of the frames."""
    root = tmp_path_factory.mktemp("data")
    folder = root / "mall" / "frames"
    write_images(folder, clip.images())
    for path in folder.iterdir():
        path.rename(folder / f"seq_{path.name}")
    lines = [f"{number},{count:.0f}" for number, count in enumerate(clip.counts, 1)]
    (root / "mall" / "counts.csv").write_text("\n".join(["frame,count", *lines]) + "\n")
    roi, person = (np.kron(each, np.ones((2, 2))) for each in (clip.roi, clip.perspective))
    content = {"pMapN": person**-2.0, "roi": {"mask": roi.astype(np.uint8)}}
    savemat(root / "mall" / "perspective_roi.mat", content)
    return root


@pytest.fixture
def mall(camera, tmp_path, monkeypatch):
    """The same in a folder that a test may change."""
    root = tmp_path / "data"
    (root / "mall" / "frames").mkdir(parents=True)
    for path in camera.rglob("*.*"):
        (root / path.relative_to(camera)).write_bytes(path.read_bytes())
    monkeypatch.setenv("ACTIVEHUBER_DATA", str(root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root / "mall"


@pytest.fixture(scope="module")
def ran(camera):
    """One quick run, what it said, and what every fit of ours and of a peer was given."""
    seen, said = [], []
    fit, tune = tasks.fit_counter, tasks.peer_of

    def spy_fit(described, counts, *args, **kwargs):
        seen.append((kwargs["uncounted"], described, counts[:, 0].copy()))
        return fit(described, counts, *args, **kwargs)

    def spy_tune(peer, counter, described, given):
        seen.append(("peer", described, given.copy()))
        return tune(peer, counter, described, given)

    found, scenes = tasks.find_backgrounds, []

    def spy_scene(frames, *args):
        scenes.append(("all" if len(frames) == N_FRAMES else "counted", frames.numbers))
        return found(frames, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACTIVEHUBER_DATA", str(camera))
        patch.setattr(tasks, "find_backgrounds", spy_scene)
        patch.setattr(measures, "QUICK_SIZES", (SIZE, 800))
        patch.setattr(measures, "TIMED_ROWS", 300)
        patch.setattr(tasks, "fit_counter", spy_fit)
        for module in (tasks, measures):
            patch.setattr(module, "peer_of", spy_tune)
        never = "Never scored before."
        outcome = bench.bench(Run(True, said.append), "mall", n_train=N_TRAIN, looks=never)
    return SimpleNamespace(outcome=outcome, seen=seen, said=said, scenes=scenes)


def made(values, columns=None):
    """Features of consecutive frames, each column a block of its own."""
    n, d = values.shape
    columns = columns or {"size": slice(0, d)}
    return Described(np.arange(1, n + 1), values, columns, np.arange(d), ())


def result(predicted, truth, *, given=(1.0, np.nan), removed=None, ends=None, seconds=1.0):
    """As `Task.solved` makes it, for tests of what is computed from it."""
    truth, predicted = np.array(truth, dtype=float), np.array(predicted, dtype=float)
    answer = tasks.Answer(predicted, seconds, 0.5, removed=removed)
    scored = Scored(predicted, truth, seconds)
    return tasks.Result(answer, scored, np.arange(len(truth)), ends, np.array(given))


# --- a whole run ------------------------------------------------------------------------


def test_counts_of_frames_to_count_reach_nobody(ran, clip):
    kinds = [kind for kind, _, _ in ran.seen]
    assert kinds.count(True) == 3 and kinds.count(False) == 4 and kinds.count("peer") == 5
    for kind, described, given in ran.seen:
        assert np.isnan(given[described.numbers > N_TRAIN]).all()
        assert len(described.values) == len(given)
        # Without uncounted frames nothing but counted ones is seen at all.
        assert len(given) == N_FRAMES if kind else not np.isnan(given).any()
    np.testing.assert_array_equal(ran.seen[0][2][:N_TRAIN], clip.counts[:N_TRAIN])


def test_counted_frames_of_the_learning_curve_are_spread_evenly(ran, clip):
    (few,) = [
        given
        for kind, _, given in ran.seen
        if kind is True and np.isfinite(given).sum() == SIZE
    ]
    places = np.flatnonzero(~np.isnan(few))
    step = N_TRAIN / SIZE
    assert places[0] == int(step / 2) and places[-1] == int(N_TRAIN - step / 2)
    assert set(np.diff(places)) <= {3, 4}
    np.testing.assert_array_equal(few[places], clip.counts[places])


def test_tables_have_all_methods_and_what_the_paper_prints(ran):
    main, curve, robust, speed = ran.outcome.tables
    rows = {
        line[0]: dict(zip(main.header()[1:], line[1:], strict=False)) for line in main.lines()
    }
    assert list(rows)[:2] == [tasks.WITH, tasks.WITHOUT]
    assert {"KRR", "ridge", "K-nn"} < set(rows) and "GPR" not in rows
    assert rows[tasks.WITH]["MAE paper"] == rows[tasks.WITHOUT]["MAE paper"] == "3.36"
    assert rows["KRR"]["MAE paper"] == "–"
    assert rows["MORR, given features (quoted)"]["MRE paper"] == "0.0990"
    figures = {(cell.keys, cell.metric): cell.ours for cell in main.cells}
    assert 0.0 < figures[(tasks.WITH,), "MAE"] < 3.0
    assert 50.0 <= figures[(tasks.WITH,), "coverage, %"] <= 100.0
    assert ((tasks.KRR,), "removed, %") not in figures
    sizes = list(dict.fromkeys(cell.keys[0] for cell in curve.cells))
    assert sizes == [str(SIZE), str(N_TRAIN)]
    last = {c.keys[1]: c.ours for c in curve.cells if c.metric == "MAE" and c.keys[0] == "80"}
    assert last[tasks.WITHOUT] == figures[(tasks.WITHOUT,), "MAE"]
    counts = list(dict.fromkeys(cell.keys[1] for cell in robust.cells))
    assert counts == ["as given", "replaced, seed 0"]
    assert {cell.metric for cell in robust.cells} >= {"growth, %", "precision, %", "recall, %"}
    assert [cell.ours for cell in speed.cells if cell.metric == "wanted"] == [60, 15, 10_000]
    assert all(cell.ours > 0 for cell in speed.cells)


def test_notes_say_protocol_seeds_versions_and_looks(ran):
    notes = " ".join(ran.outcome.tables[0].notes)
    for words in ("Frames 1–80 train, 81–120", "Seeds of the replaced counts: 0;", "OpenCV"):
        assert words in notes
    assert "Quick:" in notes and "Never scored before." in notes
    assert f"{tasks.WITH}: " in notes and "of 120 frames described" in " ".join(ran.said)


def test_every_demand_has_a_finding(ran):
    found = ran.outcome.findings
    assert len(found) == 7 and all(text.endswith(".") for text in found)
    assert sum("reach 2.4 / 9.2 / 0.08: " in text for text in found) == 2
    assert sum("less than 5 % wanted: " in text for text in found) == 1
    assert sum("at least 10,000 wanted: " in text for text in found) == 1


def test_the_writer_of_experiments_takes_it(ran, tmp_path):
    write_outcome(ran.outcome, tmp_path, {"extent": "quick"})
    names = {path.name for path in tmp_path.iterdir()}
    stem = "crowd-mall"
    assert names == {f"{stem}{end}" for end in (".csv", ".md", ".json")} | {
        f"{stem}-time.png",
        f"{stem}-learning.png",
    }
    shown = json.loads((tmp_path / f"{stem}.json").read_text())
    assert [len(table["lines"]) > 1 for table in shown["tables"]] == [True] * 4


# --- scoring ----------------------------------------------------------------------------


def test_a_task_hides_what_scores():
    task = tasks.Task.of(made(np.zeros((5, 1))), np.array([1.0, 2, 3, 0, 4]), 3)
    np.testing.assert_array_equal(task.given, [1, 2, 3, np.nan, np.nan])

    def method(described, given):
        given[:] = 0.0
        return tasks.Answer(np.array([9.0, 9, 9, 2, 5]), 1.0, 2.0)

    found = task.solved(method)
    assert found.errors == (1.5, 2.5, 0.25) and found.scored.seconds == 3.0
    assert found.coverage is None and found.removed_share is None
    np.testing.assert_array_equal(found.numbers, [4, 5])
    # What a method does to its copy stays with it.
    np.testing.assert_array_equal(task.given[:3], [1, 2, 3])
    some = task.counting(np.array([0, 2]))
    np.testing.assert_array_equal(some.given, [1, np.nan, 3, np.nan, np.nan])
    assert some.solved(method).errors == found.errors


def test_a_task_gives_no_count_away_and_takes_no_gap():
    counts = np.arange(4.0)
    task = tasks.Task.of(made(np.zeros((4, 1))), counts, 2)
    with pytest.raises(ValueError, match="must not be given"):
        replace(task, given=counts).solved(lambda described, given: None)
    with pytest.raises(ValueError, match=r"\(4,\) finite counts"):
        task.solved(lambda described, given: tasks.Answer(given, 0.0, 0.0))


def test_coverage_and_removed_share():
    ends = np.array([[0.0, 2.0], [3.0, 4.0], [5.0, 5.0], [6.0, 9.0]])
    found = result(
        [1, 3, 5, 7],
        [1, 2, 5, 10],
        given=[3.0, 4.0, np.nan, 5.0, 6.0],
        removed=np.array([False, True, False, False, False]),
        ends=ends,
    )
    assert found.coverage == 0.5 and found.removed_share == 0.25


# --- peers ------------------------------------------------------------------------------


def counter_with(d, *parts):
    """Only what peers take from a counter."""
    scaling = Scaling(np.full(d, 1.0), np.full(d, 2.0))
    parts = parts or (KernelFeatures("size", np.arange(d), None),)
    return SimpleNamespace(preparation=Preparation(scaling, parts))


def test_peers_get_the_features_ours_has_chosen(rng):
    values = rng.normal(size=(9, 5))
    temporal = Components.of(rng.normal(size=(60, 3)), np.arange(60), most=2).predicting(1)
    scaled = (values - 1.0) / 2.0
    counter = counter_with(5, KernelFeatures("edges and texture", np.array([2, 3, 4]), None))
    found = tasks.same_features(counter, made(values))
    np.testing.assert_array_equal(found, scaled[:, 2:])
    parts = (
        KernelFeatures("size", np.arange(2), None),
        KernelFeatures("edges", np.array([2, 3, 4]), temporal),
    )
    found = tasks.same_features(counter_with(5, *parts), made(values))
    wanted = np.hstack([scaled[:, :2], scaled[:, 2:] @ temporal.of_features])
    np.testing.assert_allclose(found, wanted)


def test_a_peer_is_tuned_on_contiguous_folds_of_training_frames(rng):
    """Against the same folds written out; the better of two is the one that is fitted."""
    values, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    given, counter = np.where(np.arange(40) < 30, y, np.nan), counter_with(3)
    A, centre = (values - 1.0) / 2.0, y[:30].mean()
    losses = {}
    for alpha in (0.1, 50.0):
        means = []
        for k in (5, 2):
            errors = []
            for part in np.array_split(np.arange(30), k):
                rest = np.setdiff1d(np.arange(30), part)
                model = Ridge(alpha).fit(A[rest], y[rest] - centre)
                errors += np.abs(model.predict(A[part]) + centre - y[part]).tolist()
            means.append(np.mean(errors))
        losses[alpha] = np.mean(means)
        loss = tasks.fold_loss(Ridge(alpha), A[:30], y[:30] - centre)
        assert loss == pytest.approx(losses[alpha], rel=1e-12)
    best = Ridge(min(losses, key=losses.get)).fit(A[:30], y[:30] - centre)
    peer = tasks.Peer(Ridge(), lambda spread: {"alpha": list(losses)})
    answer = tasks.peer_of(peer, counter, made(values), given)
    np.testing.assert_allclose(answer.count, np.maximum(best.predict(A) + centre, 0.0))
    assert answer.removed is None and answer.ends is None


@pytest.mark.parametrize("name", list(tasks.peers(Run(False))))
def test_every_peer_counts(name, rng):
    hidden = 10.0 + 4.0 * np.sin(np.arange(90) / 5.0)
    values = np.outer(hidden, [1.0, -1.0, 0.5]) + 0.1 * rng.normal(size=(90, 3))
    given = np.where(np.arange(90) < 60, hidden, np.nan)
    counter = counter_with(3)
    answer = tasks.peer_of(tasks.peers(Run(False))[name], counter, made(values), given)
    assert np.mean(np.abs(answer.count - hidden)[60:]) < 1.5
    assert answer.fit_seconds > 0.0


def test_quick_runs_have_fewer_peers():
    quick, full = tasks.peers(Run(True)), tasks.peers(Run(False))
    assert set(quick) < set(full)
    assert isinstance(full["K-nn"].model, KNeighborsRegressor)
    assert {"KRR", "GPR", "SVR", "ridge", "K-nn", "boosting"} == set(full)


# --- wrong counts -----------------------------------------------------------------------


def test_a_fifth_of_the_counts_is_replaced_within_their_range():
    given = np.concatenate([np.full(2000, 5.0), [0.0, 9.0], np.full(1000, np.nan)])
    other = measures.replaced_counts(given, 0)
    changed = other[:2002] != given[:2002]
    # One in ten is replaced by the number that was there.
    assert 0.16 * 2002 < changed.sum() < 0.2 * 2002
    drawn = other[:2002][changed]
    assert set(drawn) == set(range(10)) - {5}
    assert np.isnan(other[2002:]).all()
    np.testing.assert_array_equal(other, measures.replaced_counts(given, 0))
    assert not np.array_equal(other, measures.replaced_counts(given, 1), equal_nan=True)


def test_precision_and_recall_of_removed_counts():
    before = [10.0, 20.0, 30.0, 40.0, 50.0, np.nan]
    after = [10.0, 23.0, 39.0, 40.0, 59.0, np.nan]
    removed = np.array([True, False, True, False, False, False])
    clean = result([1, 1], [2, 2], given=before)
    disturbed = measures.Disturbed(result([1, 0], [2, 2], given=after, removed=removed), clean)
    assert disturbed.growth == pytest.approx(50.0)
    assert disturbed.precision == 0.5
    assert disturbed.recall() == pytest.approx(1 / 3)
    assert disturbed.recall(beyond=5.0) == 0.5
    assert disturbed.recall(beyond=50.0) is None
    none = measures.Disturbed(
        result([1, 0], [2, 2], given=after, removed=removed & False), clean
    )
    assert none.precision is None and none.recall() == 0.0
    peer = measures.Disturbed(result([1, 0], [2, 2], given=after), clean)
    assert peer.precision is None and peer.recall() is None


# --- findings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "reach", "aim"),
    [
        ((1.0, 1.0), "reached", "reached"),
        ((2.0, 2.0), "reached", "not reached"),
        ((0.0, 4.0), "reached", "not reached"),
        ((0.0, 5.0), "not reached", "not reached"),
    ],
)
def test_all_three_errors_must_be_within_limits(errors, reach, aim):
    """(0, 4) has MAE 2 and MSE 8; (0, 5) has MSE 12.5."""
    text = tables.error_finding("ours", result(100.0 + np.array(errors), [100.0, 100.0]))
    assert f"reach 2.4 / 9.2 / 0.08: {reach};" in text
    assert text.endswith(f"aim 1.9 / 6 / 0.062: {aim}.")


def test_where_uncounted_frames_pay():
    def three(own, other, alone):
        names = (tasks.WITH, tasks.WITHOUT, tasks.ALONE)
        return {n: result([e], [0]) for n, e in zip(names, (own, other, alone), strict=True)}

    curve = {25: [three(3, 4, 6)], 50: [three(3, 3, 2)], 100: [three(2, 4, 8), three(2, 1, 8)]}
    in_all, beyond = tables.curve_finding(curve).split(" Beyond the empty scene ")
    assert "pay with 25, 100 counted frames" in in_all
    assert "-50.0 % at 25, +50.0 % at 50, -75.0 % at 100" in in_all
    assert "pay with 25, 100 counted frames" in beyond
    assert "-25.0 % at 25, +0.0 % at 50, -20.0 % at 100" in beyond
    assert "pay nowhere" in tables.curve_finding({25: [three(3, 2, 4)]})
    assert measures.mean_mae(curve[100], tasks.WITHOUT) == 2.5


def test_of_counted_frames_alone_the_empty_scene_is_found_in_these(ran):
    """What was described by others differs; of frames to count none has told of the scene."""
    without = [d for kind, d, given in ran.seen if kind is False and len(given) == SIZE]
    assert len(without) == 2
    first, second = (described.values for described in without)
    assert first.shape == second.shape and not np.allclose(first, second)
    assert [kind for kind, _ in ran.scenes] == ["all", "counted", "counted"]
    assert [len(numbers) for _, numbers in ran.scenes] == [N_FRAMES, SIZE, N_TRAIN]
    assert all(max(numbers) <= N_TRAIN for _, numbers in ran.scenes[1:])


def test_no_draw_of_counted_frames_is_made_twice():
    for size, many in ((25, 3), (200, 3), (400, 2), (799, 3)):
        draws = measures.drawn_places(800, size, measures.DRAWS)
        assert len({tuple(draw) for draw in draws}) == len(draws) == many
        assert all(
            len(set(draw)) == size and 0 <= min(draw) <= max(draw) < 800 for draw in draws
        )


@pytest.mark.parametrize(("mae", "verdict"), [(1.03, "reached"), (1.06, "not reached")])
def test_growth_is_the_mean_over_seeds(mae, verdict):
    clean = result([1.0], [0.0])
    own = {
        seed: measures.Disturbed(result([m], [0.0]), clean) for seed, m in ((0, 1.0), (1, mae))
    }
    own[1] = measures.Disturbed(result([2 * mae - 1.0], [0.0]), clean)
    text = tables.growth_finding({tasks.WITH: own, tasks.KRR: own})
    assert f"grows by {100 * (mae - 1):.1f} % (at worst {200 * (mae - 1):.1f} %" in text
    assert text.endswith(f"wanted: {verdict}.")


def test_speeds_are_at_least_or_at_most():
    fast, slow = measures.Speed("frames", 60.0, 60.0), measures.Speed("frames", 59.0, 60.0)
    assert fast.reached and not slow.reached
    fit = measures.Speed("fit, seconds", 15.5, 15.0, at_least=False)
    assert not fit.reached
    assert tables.speed_finding(fit) == "Fit, seconds: 15.5; at most 15 wanted: not reached."
    assert measures.Speed("fit", 15.0, 15.0, at_least=False).reached


# --- the data ---------------------------------------------------------------------------


def test_frames_of_mall(mall, clip):
    found = data.mall_frames()
    assert found.folder == mall / "frames"
    np.testing.assert_array_equal(found.counts, clip.counts)
    np.testing.assert_array_equal(found.roi[::2, ::2], clip.roi)
    np.testing.assert_allclose(found.perspective[::2, ::2], clip.perspective)
    lines = (mall / "counts.csv").read_text().splitlines()
    (mall / "counts.csv").write_text("\n".join([lines[0], *lines[:0:-1]]))
    np.testing.assert_array_equal(data.mall_frames().counts, clip.counts)


def test_without_a_table_the_published_counts_serve(mall, clip):
    (mall / "counts.csv").unlink()
    with pytest.raises(MissingDataError, match=r"mall/mall_gt\.mat is not in .*: take it"):
        data.mall_frames()
    savemat(mall / "mall_gt.mat", {"count": clip.counts[:, None].astype(np.uint8)})
    np.testing.assert_array_equal(data.mall_frames().counts, clip.counts)


def test_missing_frames_are_said_with_where_they_go(mall):
    (mall / "perspective_roi.mat").unlink()
    (mall / "frames" / "seq_000001.jpg").unlink()
    with pytest.raises(MissingDataError) as caught:
        bench.bench(Run(True, print), "mall")
    message = str(caught.value)
    assert message.startswith("mall/frames/seq_000001.jpg, mall/perspective_roi.mat are not in")
    assert "mall_dataset.zip" in message and "\n" not in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda mall: (mall / "counts.csv").write_text("frame,count\n1,2\n3,4\n"), "one count"),
        (lambda mall: (mall / "counts.csv").write_text("1,2\n2,-1\n"), "0 or more"),
        (lambda mall: (mall / "counts.csv").write_text("1,2,3\n"), "3 columns"),
        (
            lambda mall: savemat(
                mall / "perspective_roi.mat",
                {"pMapN": np.zeros((4, 4)), "roi": {"mask": np.ones((4, 4))}},
            ),
            "above 0",
        ),
        (
            lambda mall: savemat(
                mall / "perspective_roi.mat",
                {"pMapN": np.ones((4, 5)), "roi": {"mask": np.ones((4, 4))}},
            ),
            r"\(4, 4\), pMapN \(4, 5\)",
        ),
        (lambda mall: (mall / "frames" / "seq_000007.jpg").unlink(), "has 119 frames"),
        (lambda mall: (mall / "frames" / "seq_000007.jpg").write_bytes(b"x"), "needs all"),
    ],
)
def test_a_folder_that_does_not_fit_is_one_line(mall, change, words):
    change(mall)
    with pytest.raises(TableError, match=words) as caught:
        bench.bench(Run(True, lambda line: None), "mall", n_train=N_TRAIN)
    assert "\n" not in str(caught.value)


def test_a_sequence_without_frames_to_count_is_said(mall):
    with pytest.raises(TableError, match="has 120 frames; the bench trains on the first 800"):
        bench.bench(Run(True, print), "mall")


def test_unknown_names_are_said():
    with pytest.raises(TableError, match="no bench 'plaza'; there is: mall"):
        bench.bench(Run(True, print), "plaza")
