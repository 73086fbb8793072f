"""Columns to numbers as scikit-learn's own transformers do it, and words that say so."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from activehuber.data import encoding as module
from activehuber.data.encoding import Encoding, TableFeatures, as_frame
from activehuber.runtime.messages import TableError


@pytest.fixture
def table(rng):
    n = 80
    frame = pd.DataFrame(
        {
            "size": rng.normal(5.0, 3.0, n),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "count": rng.integers(0, 5, n),
            "town": rng.choice(["a", "b", "c"], n),
            "many": [f"level{i // 3}" for i in range(n)],
            "flag": rng.random(n) < 0.5,
            "day": pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
        }
    )
    frame.loc[0, "many"] = "once"
    return frame


def test_equals_the_column_transformer_one_would_write(table):
    numbers = ["size", "gaps", "count"]
    words = ["town", "many"]
    oracle = ColumnTransformer(
        [
            (
                "n",
                Pipeline([("i", SimpleImputer(strategy="median")), ("s", StandardScaler())]),
                numbers,
            ),
            ("m", MissingIndicator(features="missing-only"), numbers),
            (
                "w",
                OneHotEncoder(
                    min_frequency=2,
                    max_categories=20,
                    handle_unknown="infrequent_if_exist",
                    sparse_output=False,
                ),
                words,
            ),
        ]
    )
    frame = table[[*numbers, *words]]
    new = frame.sample(30, random_state=0).assign(town="z", many="w")
    features = TableFeatures().fit(frame)
    names = features.get_feature_names_out()
    order = [*np.flatnonzero(np.isin(names, numbers)), *np.flatnonzero(names == "gaps missing")]
    order += [i for word in words for i in features.places_of([word])]
    expected = oracle.fit(frame).transform(new)
    np.testing.assert_allclose(features.transform(frame)[:, order], oracle.transform(frame))
    np.testing.assert_allclose(features.transform(new)[:, order], expected)


def test_dates(table):
    day = table["day"]
    features = TableFeatures().fit(table[["day"]])
    names = ["day elapsed days", "day year", "day day of year", "day weekday"]
    assert features.get_feature_names_out().tolist() == names
    parts = np.stack(
        [(day - day.min()).dt.days, day.dt.year, day.dt.day_of_year, day.dt.day_of_week], axis=1
    )
    np.testing.assert_allclose(
        features.transform(table), StandardScaler().fit_transform(parts), atol=1e-12
    )


def test_missing_dates_and_times_of_day():
    frame = pd.DataFrame({"t": pd.to_datetime(["2024-01-01 06:00", None, "2024-01-02 18:00"])})
    features = TableFeatures().fit(frame)
    assert features.get_feature_names_out().tolist()[-2:] == ["t hour", "t missing"]
    out = features.transform(frame)
    assert np.all(np.isfinite(out)) and out[:, -1].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("layout", ["%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y"])
@pytest.mark.parametrize("dtype", [object, "string"])
def test_dates_as_text_are_dates(table, layout, dtype):
    text = table[["day"]].assign(day=table["day"].dt.strftime(layout).astype(dtype))
    text.loc[4, "day"] = None
    typed = table[["day"]].copy()
    typed.loc[4, "day"] = pd.NaT
    features, wanted = TableFeatures().fit(text), TableFeatures().fit(typed)
    assert features.kinds_ == ("date",) and features.sentences_ == wanted.sentences_
    np.testing.assert_array_equal(features.transform(text), wanted.transform(typed))
    # A day of the first twelve alone would not tell days from months.
    early = typed["day"].dt.day <= 12
    again = TableFeatures().use(Encoding.of(asdict(features.encoding_)))
    np.testing.assert_array_equal(again.transform(text[early]), wanted.transform(typed[early]))


def test_text_that_is_not_all_dates_is_no_date(table):
    text = table["day"].dt.strftime("%Y-%m-%d")
    frame = table[["size"]].assign(
        some=text.where(table.index != 3, "soon"),
        never="2024-02-31",
        kinds=pd.Categorical(text),
    )
    features = TableFeatures(min_count=1).fit(frame)
    assert "date" not in features.kinds_


def test_dates_that_may_be_either_and_strange_ones_are_told():
    text = pd.DataFrame({"d": ["1/2/2020", "3/4/2020", "5/6/2020", "7/8/2020"]})
    features = TableFeatures().fit(text)
    assert any("d: dates were read as month/day/year" in line for line in features.sentences_)
    text.loc[1, "d"] = "soon"
    out, notes = features.transform_and_tell(text)
    assert notes == ["Cells that are no dates count as missing: d (1)."]
    known = [0, 2, 3]
    np.testing.assert_array_equal(out[known], features.transform(text.loc[known]))


def test_zones_are_one_time(table):
    naive = table[["day"]]
    zoned = naive.assign(day=naive["day"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
    np.testing.assert_array_equal(
        TableFeatures().fit_transform(naive), TableFeatures().fit_transform(zoned)
    )


def test_columns_without_information_are_left_out(rng):
    n = 50
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "same": np.ones(n),
            "word": ["w"] * n,
            "none": [None] * n,
            "name": [f"person {i}" for i in range(n)],
            "list": [[1]] * n,
            "inf": np.full(n, np.inf),
        }
    )
    features = TableFeatures().fit(frame)
    assert features.columns_ == ("x",)
    said = " ".join(features.sentences_)
    for part in (
        "word, same (constant)",
        "none",
        "name (like ids or prose)",
        "list (of a type",
    ):
        assert part in said


def test_sentences_name_what_was_done(table):
    table.loc[3, "size"] = np.inf
    said = TableFeatures().fit(table).sentences_
    assert "Numbers, standardised: size, gaps, count." in said
    assert "Words, one 0/1 column a level: town, many." in said
    assert "Infinite numbers count as missing: size." in said
    table.loc[[1, 2], "town"] = None
    said = TableFeatures().fit(table).sentences_
    assert "Missing words, taken as one more word: town (2)." in said
    assert any(line.startswith("Rare levels share one") and "many (" in line for line in said)


def test_a_row_counter_is_pointed_out(rng):
    frame = pd.DataFrame({"nr": np.arange(30), "x": rng.normal(size=30)})
    assert any(
        "count the rows" in line and "nr" in line
        for line in TableFeatures().fit(frame).sentences_
    )


def test_new_table_reordered_with_more_columns(table):
    features = TableFeatures().fit(table)
    new = table[list(reversed(table.columns))].assign(extra=1)
    np.testing.assert_array_equal(features.transform(new), features.transform(table))


def test_new_table_that_lacks_a_column(table):
    with pytest.raises(TableError, match=r"lacks what the model needs: town, day$"):
        TableFeatures().fit(table).transform(table.drop(columns=["town", "day"]))


def test_strange_cells_are_told(table):
    features = TableFeatures().fit(table)
    new = table.astype({"size": object})
    new.loc[2, "size"] = "five"
    new.loc[4, "town"] = "nowhere"
    out, notes = features.transform_and_tell(new)
    assert np.all(np.isfinite(out))
    assert notes == [
        "Cells that are no finite numbers count as missing: size (1).",
        "Words that the model has not seen: town (nowhere).",
    ]
    assert np.all(out[4, features.places_of(["town"])] == 0.0)


def test_gaps_among_the_largest_numbers_are_filled_by_their_median():
    largest = np.finfo(float).max
    table = pd.DataFrame({"a": [largest, largest, -largest, np.nan, largest]})
    rows = TableFeatures().fit(table).transform(table)
    assert np.all(np.isfinite(rows))
    assert rows[3, 0] == rows[0, 0] > rows[2, 0]


def test_huge_numbers_stay_finite():
    frame = pd.DataFrame({"x": [1e308, -1e308, 0.0, 5.0], "y": [1e-320, 0.0, 1.0, 2.0]})
    features = TableFeatures().fit(frame)
    assert np.all(np.isfinite(features.transform(frame)))
    assert np.all(np.isfinite(features.transform(frame.assign(y=[1e308, -1e308, np.inf, 0.0]))))


def test_state_round_trip(table):
    table.loc[5, "day"] = pd.NaT
    features = TableFeatures().fit(table)
    again = TableFeatures().use(Encoding.of(asdict(features.encoding_)))
    np.testing.assert_array_equal(again.transform(table), features.transform(table))
    assert again.sentences_ == features.sentences_
    assert again.get_feature_names_out().tolist() == features.get_feature_names_out().tolist()


def test_clone_and_arrays(rng):
    features = clone(TableFeatures(max_levels=3)).fit(rng.normal(size=(10, 2)))
    assert features.columns_ == ("x0", "x1") and features.max_levels == 3
    with pytest.raises(TableError, match="given twice: a"):
        as_frame(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_table_too_large_for_memory_says_what_to_do(rng, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    with pytest.raises(TableError, match=r"leave columns out \(on the command line with"):
        TableFeatures().fit(rng.normal(size=(10, 2)))


def test_mixed_objects_and_nullable_types():
    frame = pd.DataFrame(
        {
            "i": pd.array([1, None, 3, 4], dtype="Int64"),
            "b": pd.array([True, None, False, True], dtype="boolean"),
            "o": np.array([1, 2.5, "3", None], dtype=object),
            "c": pd.Categorical(["u", "v", "u", "v"]),
            "t": pd.to_timedelta([1, 2, 3, 4], unit="h"),
        }
    )
    features = TableFeatures(min_count=1).fit(frame)
    assert features.kinds_ == ("number", "category", "number", "category", "number")
    assert np.all(np.isfinite(features.transform(frame)))


def test_columns_in_groups_are_the_same(table, monkeypatch):
    whole = TableFeatures().fit(table)
    bent = table.astype({"size": object, "town": object})
    bent.loc[[2, 70], "size"] = "big"
    bent.loc[[5, 71], "town"] = ["d", "e"]
    features, notes = whole.transform_and_tell(bent)
    assert notes[0].endswith("size (2).") and notes[1].endswith("town (d, e).")
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 1)
    parts = TableFeatures().fit(table)
    assert parts.sentences_ == whole.sentences_
    again, told = parts.transform_and_tell(bent)
    np.testing.assert_allclose(again, features, rtol=1e-12, atol=1e-14)
    assert told == notes
