"""The report as text: what it says, what it escapes, how large it gets. No browser."""

import json
import re
from dataclasses import fields

import numpy as np
import pytest

from activehuber.report import markup
from activehuber.report.markup import Axis, format_number
from activehuber.report.page import (
    MAX_FLAGGED_MARKS,
    MAX_KEPT_MARKS,
    MAX_LINES,
    Points,
    Report,
    Summary,
    render,
)
from tests.outline import NASTY, SCRIPT, Outline, check_policy

LIMIT = 2_000_000


def a_line(row, given=50.0, expected=21.3, residual=7.2, verdict="kept", **changes):
    values = {
        "row": str(row),
        "given": given,
        "expected": expected,
        "lower": 17.3,
        "upper": 25.3,
        "residual": residual,
        "left_at": 12.5,
        "quality": 0.25,
        "verdict": verdict,
        "reason": "Given 50.0, expected 21.3 ± 4; 5 most similar rows have 18–24.",
        "neighbours": tuple((str(k), 18.0 + k, 0.9 - 0.1 * k) for k in range(5)),
    }
    return values | changes


def a_report(n=40, n_flagged=3, n_lines=None, **changes):
    """A report on n labels of which the first n_flagged are flagged."""
    rng = np.random.default_rng(0)
    expected = 20 + 5 * rng.normal(size=n)
    residual = rng.normal(size=n)
    removed = np.arange(n) < n_flagged
    residual[removed] += 10
    given = expected + 2 * residual
    rows = np.arange(1, n + 1).astype(str)
    shown = n if n_lines is None else n_lines
    lines = list(
        a_line(*cells, verdict="flagged" if gone else "kept", quality=0.1 + k / (2 * n))
        for k, (*cells, gone) in enumerate(
            zip(
                rows[:shown],
                given[:shown],
                expected[:shown],
                residual[:shown],
                removed[:shown],
                strict=True,
            )
        )
    )
    steps = tuple(np.geomspace(50, 0.05, 30).tolist())
    names = {field.name for field in fields(Summary)} & set(changes)
    said = {name: changes.pop(name) for name in names}
    values = {
        "title": "prices.csv",
        "summary": a_summary(n, n_flagged, **said),
        "lines": lines,
        "points": Points(rows, given, expected, residual, removed, 3.5),
        "path": (steps, tuple(range(30, 0, -1))),
    }
    return Report(**(values | changes))


def a_summary(n=40, n_flagged=3, **changes):
    values = {
        "kind": "regression",
        "target": "price",
        "n_rows": n + 5,
        "n_labelled": n,
        "n_unlabelled": 5,
        "n_flagged": n_flagged,
        "n_trusted": 0,
        "n_features": 10,
        "scale": 2.0,
        "threshold": 7.0,
        "explained": 0.5,
        "parameters": {},
        "findings": ("ξ was learnt from the labels.",),
        "notes": ("10 columns were scaled.",),
        "settings": (("seed", "0"), ("data hash", "ab" * 32)),
    }
    return Summary(**(values | changes))


def a_class_report(names=("cat", "dog"), given=(0, 0, 1, 1), expected=(0, 1, 1, 1)):
    given, expected = np.array(given, dtype=float), np.array(expected, dtype=float)
    wrong = given != expected
    rows = np.arange(1, len(given) + 1).astype(str)
    lines = tuple(
        a_line(row, names[int(g)], names[int(f)], lower=None, upper=None, left_at=None)
        for row, g, f in zip(rows, given, expected, strict=True)
    )
    return a_report(
        kind="classification",
        n_labelled=len(given),
        n_flagged=int(wrong.sum()),
        scale=None,
        lines=lines,
        points=Points(rows, given, expected, wrong * 4.0, wrong, 1.0, tuple(names)),
        path=None,
    )


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def crosses(page, figure):
    """Marks of removed labels in one of the pictures."""
    part = page.split(f'<figure class="{figure}"')[1].split("</figure>")[0]
    return part.count('<use href="#cross"')


def dots(page, figure):
    part = page.split(f'<figure class="{figure}"')[1].split("</figure>")[0]
    return len(re.findall(r"M\d+ \d+h0", part))


@pytest.mark.parametrize(
    ("n", "n_flagged", "headline"),
    [
        (442, 23, "23 of 442 labels are flagged"),
        (40, 1, "1 of 40 labels is flagged"),
        (1, 1, "1 of 1 label is flagged"),
        (12_000, 0, "None of the 12,000 labels is flagged"),
        (1, 0, "The only label is not flagged"),
        (0, 0, "There are no labels"),
    ],
)
def test_headline(n, n_flagged, headline):
    page = render(a_report(n, n_flagged, n_lines=min(n, 10)))
    assert f"<h1>{headline}" in page
    assert f"<title>{headline} – prices.csv</title>" in page


def test_everything_that_was_said_is_there():
    page = render(a_report())
    text = " ".join(Outline(page).text)
    for said in ("prices.csv", "price", "ξ was learnt", "10 columns", "seed", "ab" * 32):
        assert said in text
    assert data_of(page)["lines"][0][9].startswith("Given 50.0, expected 21.3")
    assert [n[0] for n in data_of(page)["lines"][0][10]] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("report", [a_report(), a_class_report(), a_report(0, 0)])
def test_page_is_well_formed_and_asks_for_nothing(report):
    page = render(report)
    outline = Outline(page)
    for name, attributes in outline.elements:
        assert not {"src", "srcset", "style", "onclick", "action"} & set(attributes)
        if "href" in attributes:
            assert attributes["href"].startswith(("#", "data:,")), name
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    assert "@import" not in page


def test_policy_names_exactly_our_script_and_style():
    check_policy(render(a_report()))


def nasty_report():
    line = a_line(
        NASTY,
        reason=f"{NASTY} \u2028 & {SCRIPT}",
        verdict="flagged",
        neighbours=((NASTY, NASTY, 0.5),),
    )
    points = Points(
        np.array([NASTY]), np.ones(1), np.ones(1), np.ones(1), np.array([True]), 1.0
    )
    return a_report(
        title=NASTY,
        target=SCRIPT,
        lines=[line, line | {"given": NASTY, "expected": SCRIPT}],
        points=points,
        findings=(SCRIPT, "$title ${data}"),
        notes=(NASTY,),
        settings=((SCRIPT, NASTY),),
    )


def test_text_of_the_user_is_inert_and_survives():
    page = render(nasty_report())
    outline = Outline(page)
    assert outline.count("img") == 0
    assert outline.count("script") == 2
    data = data_of(page)
    assert data["lines"][0][0] == NASTY
    assert data["lines"][0][9] == f"{NASTY} \u2028 & {SCRIPT}"
    payload = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1]
    assert not set("<>&\u2028\u2029") & set(payload)
    assert "$title ${data}" in " ".join(outline.text)


def test_class_names_are_inert():
    outline = Outline(render(a_class_report(names=(SCRIPT, NASTY))))
    assert outline.count("img") == 0
    assert outline.count("script") == 2


def test_text_that_is_no_unicode_is_replaced():
    page = render(a_report(title="a\udcffb\x00c\u202ed", lines=(a_line("\ud800"),)))
    page.encode()
    assert "a b c d" in page


@pytest.mark.parametrize("hole", [float("nan"), float("inf"), -float("inf"), None])
def test_missing_numbers(hole):
    number = float("nan") if hole is None else hole
    line = a_line(1, number, number, number, lower=hole, upper=hole, left_at=hole,
                  quality=number, neighbours=(("2", number, number),))  # fmt: skip
    column = np.array([number, 1.0])
    points = Points(np.array(["1", "2"]), column, column, column, column == 1.0, number)
    report = a_report(
        lines=(line,),
        points=points,
        scale=hole,
        path=((number, 1.0), (2, 1)),
        threshold=number,
    )
    page = render(report)
    text = " ".join(Outline(page).text).lower()
    assert "nan" not in text
    assert not re.search(r"\binf", text)
    assert data_of(page)["lines"][0][1:8] == [None] * 7
    assert crosses(page, "fit") == 1
    assert 'class="band"' not in page


def test_twenty_thousand_labels():
    page = render(a_report(20_000, 150))
    assert len(page.encode()) < LIMIT
    assert len(data_of(page)["lines"]) == MAX_LINES
    assert "The 2,000 worst of 20,000 labels are here; all are in labels.csv." in page
    for figure in ("fit", "residuals"):
        assert crosses(page, figure) == 150
        assert dots(page, figure) == MAX_KEPT_MARKS
    assert "3,000 of 19,850 kept labels are drawn." in page


def test_a_million_labels():
    page = render(a_report(1_000_000, 60_000, n_lines=2_500))
    assert len(page.encode()) < LIMIT
    assert crosses(page, "fit") == MAX_FLAGGED_MARKS
    assert "800 of 60,000 that are flagged." in page


def test_long_texts_do_not_make_a_large_page():
    long = "<&é" * 4_000
    line = a_line(long, long, long, reason=long, neighbours=((long, long, 0.5),) * 50)
    n = 3_000
    rows = np.full(n, long[:300])
    ones = np.arange(n, dtype=float)
    page = render(
        a_report(
            n,
            title=long,
            target=long,
            lines=(line,) * n,
            points=Points(rows, ones, ones, ones, np.ones(n, bool), 1.0),
            findings=(long,) * 10,
            notes=(long,) * 10,
            settings=((long, long),) * 10,
        )
    )
    assert len(page.encode()) < LIMIT
    shown = len(data_of(page)["lines"])
    assert 0 < shown < MAX_LINES
    assert f"The {shown:,} worst of 3,000 labels are here" in page


def test_thinning_keeps_the_farthest_label():
    report = a_report(50_000, 10, n_lines=5)
    report.points.residual[33_333] = 25.0
    page = render(report)
    top = min(int(y) for y in re.findall(r"M\d+ (\d+)h0", page.split('class="residuals"')[1]))
    assert top < 500  # all other kept labels lie within 5 of 25


def test_absurd_labels_do_not_squeeze_the_picture():
    report = a_report()
    report.points.given[0] = 1e12
    page = render(report)
    part = page.split('<figure class="fit"')[1].split("</figure>")[0]
    assert "1 lies farther out; it is drawn at the edge." in part
    across = [int(x) for x in re.findall(r"M(\d+) \d+h0", part)]
    assert max(across) - min(across) > 120
    assert '<use href="#cross" x="100%"' in part


@pytest.mark.parametrize("value", [0.0, 5.0, 1e308, -1e308, 1e-320])
def test_one_value_only(value):
    n = 5
    column = np.full(n, value)
    points = Points(np.arange(n).astype(str), column, column, column, column > np.inf, 1.0)
    page = render(a_report(n, 0, points=points, path=((1.0,), (5,)), threshold=1.0))
    assert dots(page, "fit") == dots(page, "residuals") == n


def test_values_of_all_sizes():
    column = np.array([1e308, -1e308, 1e-320, 2e-320, 0.0, 1.0])
    points = Points(np.arange(6).astype(str), column, column[::-1], column, column > 0, 1e308)
    path = ((1e308, 1.0, 1e-320), (3, 2, 1))
    page = render(a_report(6, 4, points=points, path=path, threshold=1e-320))
    assert crosses(page, "fit") == 4


def test_band_and_chosen_threshold_are_marked():
    page = render(a_report())
    assert '<rect class="band"' in page
    assert "±ξ = ±3.50 σ̂" in page
    assert "chosen ξ = 7.000" in page
    assert "logarithmic" in page


def test_without_a_path_there_is_no_path_plot():
    assert '<figure class="path"' not in render(a_report(path=None))


def test_classes_are_counted():
    page = render(a_class_report())
    table = page.split('<table class="classes">')[1].split("</table>")[0]
    cells = [
        " ".join(Outline(cell).text).split()
        for cell in re.findall(r"<td[^>]*>(.*?)</td>", table, re.DOTALL)
    ]
    assert cells == [["1"], ["1", "✕", "flagged:", "1"], ["0"], ["2"]]
    assert 'class="labels classification without-lower without-left_at"' in page


def test_many_classes_are_gathered():
    rng = np.random.default_rng(0)
    given = np.concatenate([np.arange(30), rng.integers(0, 12, 300)])
    page = render(a_class_report([f"class {k}" for k in range(30)], given, given))
    table = page.split('<table class="classes">')[1].split("</table>")[0]
    assert "18 others" in table
    assert table.count("<td") == 13**2


def test_rows_stand_in_the_page_without_script():
    outline = Outline(render(a_report(120)))
    text = " ".join(outline.text)
    assert outline.count("tr", **{"class": "line"}) == 50
    assert text.count("5 most similar rows have 18–24.") == 50
    assert "JavaScript is off: these are the 50 worst labels." in text
    # What needs the script is hidden until it runs.
    hidden = [a.get("id") or a["class"] for _, a in outline.elements if "hidden" in a]
    assert {"theme", "controls scripted", "pages scripted"} <= set(hidden)


def test_verdicts_can_be_chosen_with_their_counts():
    lines = (*a_report(40, 3).lines, a_line("x", verdict="trusted"))
    page = render(a_report(lines=lines))
    options = re.findall(r"<option[^>]*>([^<]*)</option>", page)
    assert options == ["All", "Flagged (3)", "Kept (37)", "Trusted (1)"]


def test_numbers_of_a_column_share_their_decimals():
    page = render(a_report(lines=(a_line(1, 50.0, 21.3456), a_line(2, 7.0, 120.0))))
    cells = re.findall(r'<td class="number label">([^<]*)</td>', page)
    assert cells == ["50", "21.35", "7", "120.00"]


@pytest.mark.parametrize(
    ("value", "decimals", "shown"),
    [
        (2.5, 0, "3"),
        (-2.5, 0, "−3"),
        (-0.001, 2, "0.00"),
        (0.125, 2, "0.13"),
        (1234.5678, 1, "1234.6"),
        (26_610_000.0, 0, "26610000"),
        (1e9, 0, "1e9"),
        (-1.5e300, 2, "−1.5e300"),
        (3.21e-9, 12, "3.21e−9"),
        (0.0, 12, "0"),
        (None, 2, "–"),
        (float("nan"), 2, "–"),
    ],
)
def test_format_number(value, decimals, shown):
    assert format_number(value, decimals) == shown


def test_render_is_pure():
    report = a_report(5_000, 900)
    before = report.points.given.copy()
    assert render(report) == render(report)
    assert np.array_equal(report.points.given, before)


def test_wrong_reports_are_refused():
    with pytest.raises(ValueError, match="kind must be"):
        a_report(kind="ranking")
    with pytest.raises(ValueError, match="of one length"):
        Points(np.array(["1"]), np.ones(2), np.ones(2), np.ones(2), np.ones(2, bool), 1.0)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (-0.4, 10.4, ["0.0", "2.5", "5.0", "7.5", "10.0"]),
        (-3.0, 1.1, ["−3", "−2", "−1", "0", "1"]),
        (0.0, 0.9, ["0.0", "0.2", "0.4", "0.6", "0.8"]),
        (0.0, 1e9, ["0", "2e8", "4e8", "6e8", "8e8", "1e9"]),
    ],
)
def test_ticks_are_round_numbers(low, high, labels):
    assert [text for _, text in Axis(low, high).ticks()] == labels


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.5, 3.5, ["1", "2", "3"]),
        (0.5, 12.5, ["5", "10"]),
        (0.5, 1250.5, ["500", "1000"]),
    ],
)
def test_ticks_at_whole_numbers(low, high, labels):
    assert [text for _, text in Axis(low, high, whole=True).ticks()] == labels


def test_ticks_of_a_logarithmic_axis():
    assert [text for _, text in Axis(0.05, 50, log=True).ticks()] == ["0.1", "1", "10"]
    assert [text for _, text in Axis(2, 90, log=True).ticks()] == ["3", "10", "30"]


def test_a_column_is_written_in_one_way():
    """Prices of millions, one of them ten times too large; then a thousand times that."""
    prices = (26_610_000.0, 5_100_000.0, 4_900_000.0)
    for factor, shown in (
        (1.0, ("26610000", "5100000", "4900000")),
        (1000.0, ("2.661e10", "5.1e9", "4.9e9")),
    ):
        lines = tuple(a_line(k, v * factor, v * factor) for k, v in enumerate(prices))
        page = render(a_report(lines=lines))
        for text in shown:
            assert page.count(f'<td class="number label">{text}</td>') == 2


@pytest.mark.parametrize("high", [1.0, 999.0, 123_456.0, 2.6e7, 4e12])
@pytest.mark.parametrize("log", [False, True])
def test_ticks_fit_below_a_picture_on_a_phone(high, log):
    axis = Axis(high / 1e4 if log else 0.0, high, log=log)
    ticks = markup._fitting(axis.ticks())
    assert len(ticks) >= 2
    assert sum(len(text) + 2 for _, text in ticks) <= markup.TICK_CHARACTERS
    powers = {"e" in text for value, text in ticks if value}
    assert len(powers) == 1


def test_the_noise_has_three_digits():
    for scale, shown in ((71024.3, "71000"), (48.236, "48.2"), (0.019876, "0.0199")):
        assert f"<dt>Noise σ̂</dt><dd>{shown}</dd>" in render(a_report(scale=scale))
