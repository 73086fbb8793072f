"""The report in a real browser: headless Chromium, driven by Playwright."""

import csv
import io
import re

import numpy as np
import pytest

from activehuber.report.page import render
from tests.browsing import (
    MOVING,
    PHONE,
    WIDE,
    axe_violations,
    check_refusals,
    opener,
)
from tests.outline import NASTY, SCRIPT
from tests.report.test_page import (
    a_class_report,
    a_line,
    a_report,
    nasty_report,
)

pytestmark = pytest.mark.slow

# Milliseconds from the click to the new layout, of a sort and a search together; about 100 on
# a busy core of the machine this was written on.
RESPONSE = 500


@pytest.fixture
def show(browser, tmp_path):
    with opener(browser, tmp_path, render) as show:
        yield show


def column(page, index):
    """Texts of a column of the rows shown."""
    return page.locator(f"#lines tr.line td:nth-child({index})").all_inner_texts()


def head(page, key):
    return page.locator(f'th[data-key="{key}"]')


def numbers(texts):
    return [float(text.replace("−", "-")) for text in texts]


def test_sort(show):
    page = show(a_report(120))
    assert head(page, "rank").get_attribute("aria-sort") == "ascending"
    head(page, "residual").get_by_role("button").click()
    found = numbers(column(page, 6))
    assert len(found) == 50
    assert found == sorted(found)
    assert head(page, "residual").get_attribute("aria-sort") == "ascending"
    assert head(page, "rank").get_attribute("aria-sort") is None
    head(page, "residual").get_by_role("button").press("Enter")
    found = numbers(column(page, 6))
    assert found == sorted(found, reverse=True)
    assert head(page, "residual").get_attribute("aria-sort") == "descending"
    assert page.evaluate("document.activeElement.closest('th').dataset.key") == "residual"


def test_names_are_sorted_as_people_do_and_missing_numbers_come_last(show):
    nan = float("nan")
    lines = (a_line("id10", nan), a_line("id9", 3.0), a_line("id1", -2.0), a_line("id2", 10.0))
    page = show(a_report(lines=lines))
    head(page, "row").get_by_role("button").click()
    assert column(page, 2) == ["id1", "id2", "id9", "id10"]
    head(page, "given").get_by_role("button").click()
    assert column(page, 3) == ["−2", "3", "10", "–"]
    head(page, "given").get_by_role("button").click()
    assert column(page, 3) == ["10", "3", "−2", "–"]


def test_search(show):
    lines = (*a_report(80).lines, a_line("Ünlü-7", reason="Given far too HIGH."))
    page = show(a_report(lines=lines))
    page.get_by_label("Search").fill("too high")
    assert column(page, 2) == ["Ünlü-7"]
    page.get_by_label("Search").fill("ünlü")
    assert column(page, 2) == ["Ünlü-7"]
    assert page.get_by_role("status").inner_text() == "1–1 of 1"
    page.get_by_label("Search").fill("there is no such row")
    assert page.locator("#lines").inner_text() == "No label matches."
    assert page.get_by_role("button", name="Download").is_disabled()
    page.get_by_label("Search").fill("")
    assert page.get_by_role("status").inner_text() == "1–50 of 81"


def test_filter(show):
    page = show(a_report(120, 7))
    page.get_by_label("Verdict").select_option("flagged")
    assert [text.strip() for text in column(page, 9)] == ["flagged"] * 7
    page.get_by_label("Verdict").select_option("kept")
    assert page.get_by_role("status").inner_text() == "1–50 of 113"


def test_pages(show):
    page = show(a_report(120))
    assert page.get_by_role("button", name="Previous").is_disabled()
    page.get_by_role("button", name="Next").press("Enter")
    assert column(page, 1) == [str(k) for k in range(51, 101)]
    page.get_by_role("button", name="Next").click()
    assert len(column(page, 1)) == 20
    assert page.get_by_role("button", name="Next").is_disabled()
    page.get_by_role("button", name="Previous").click()
    assert page.get_by_role("status").inner_text() == "51–100 of 120"


def test_open_a_row(show):
    page = show(a_report())
    assert page.locator("tr.detail").count() == 0
    opener = page.locator("#lines .open").nth(1)
    opener.focus()
    page.keyboard.press("Enter")
    assert opener.get_attribute("aria-expanded") == "true"
    detail = page.locator(f"#{opener.get_attribute('aria-controls')}")
    assert detail.is_visible()
    assert "5 most similar rows have 18–24." in detail.inner_text()
    assert detail.locator(".neighbours tbody tr").count() == 5
    first = detail.locator(".neighbours tbody tr").first.locator("td").all_inner_texts()
    assert first[0] == "0"
    assert first[2] == "0.90"
    # The focus stayed on the button, and the space bar closes what it opened.
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.keyboard.press("Space")
    assert page.locator("tr.detail").count() == 0
    page.locator("#lines tr.line td.number").first.click()
    assert page.locator("tr.detail").count() == 1


def test_a_mark_in_the_picture_opens_its_row(show):
    page = show(a_report(200, 90))
    page.get_by_label("Search").fill("nothing")
    page.locator('figure.fit use[data-line="60"]').dispatch_event("click")
    assert page.locator("#detail-61").is_visible()
    assert page.get_by_label("Search").input_value() == ""
    hint = page.locator('figure.residuals use[data-line="60"] title').text_content()
    assert hint.startswith("Row 61: residual +")


def test_a_pointer_hits_a_mark(show):
    page = show(a_report(60, 1))
    page.locator("figure.fit use[data-line]").click()
    assert page.locator("#detail-1").is_visible()


def test_download(show):
    formula = '=HYPERLINK("x")'
    lines = (
        a_line(formula, -5.25, reason='A "quoted", reason.\n', verdict="flagged"),
        a_line("+1", 1.0, verdict="flagged"),
        a_line("-2", 1.0, verdict="flagged"),
        a_line("@x", float("nan"), verdict="flagged"),
        a_line("plain", 3.0),
    )
    page = show(a_report(lines=lines))
    page.get_by_label("Verdict").select_option("flagged")
    head(page, "rank").get_by_role("button").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "labels-shown.csv"
    text = download.value.path().read_bytes().decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["row"] for row in rows] == ["'@x", "'-2", "'+1", "'" + formula]
    assert [row["given"] for row in rows] == ["", "1", "1", "-5.25"]
    assert rows[-1]["reason"].strip() == 'A "quoted", reason.'
    assert list(rows[0]) == [
        "row", "given", "expected", "lower", "upper", "residual", "left_at", "quality",
        "verdict", "reason",
    ]  # fmt: skip


def test_texts_of_the_user_are_inert(show):
    page = show(nasty_report())
    page.locator("#lines .open").first.click()
    page.locator("#lines .open").nth(1).click()
    assert page.locator("header .name").all_inner_texts() == [NASTY, SCRIPT]
    assert page.locator("#lines .open").first.inner_text() == NASTY
    assert page.locator(".neighbours tbody td").first.inner_text() == NASTY
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("document.scripts.length") == 2
    page.get_by_label("Search").fill(NASTY)
    assert len(column(page, 1)) == 2


def test_policy_forbids_requests_and_foreign_scripts(browser, tmp_path):
    check_refusals(browser, tmp_path, render(a_report()))


def test_the_two_formatters_agree(show):
    rng = np.random.default_rng(1)
    awkward = [0.5, 2.5, -2.5, 0.125, -0.0, 1e9, 999999999.5, -1e22, 1e-9, float("nan"), 1.005]
    drawn = (rng.normal(size=39) * 10.0 ** rng.integers(-6, 9, size=39)).tolist()
    values = awkward + drawn
    lines = tuple(
        a_line(k, v, v, v, lower=v, upper=-v, left_at=v, quality=abs(v))
        for k, v in enumerate(values)
    )
    for scale in (1.0, 1e-12):
        scaled = tuple(a_line(k, v * scale, v * scale) for k, v in enumerate(values))
        for report in (a_report(lines=lines), a_report(lines=scaled)):
            with_script, without = show(report), show(report, script=False)
            for index in range(3, 9):
                assert column(with_script, index) == column(without, index)
            assert len(column(without, 3)) == 50


def test_without_script(show):
    assert not show(a_report(80)).get_by_text("JavaScript is off").is_visible()
    page = show(a_report(80), script=False)
    assert page.locator("h1").inner_text() == "3 of 80 labels are flagged."
    assert page.get_by_text("JavaScript is off: these are the 50 worst labels.").is_visible()
    assert len(column(page, 1)) == 50
    assert page.locator("tr.detail").first.is_visible()
    assert not page.locator("#search").is_visible()
    assert not page.locator("#theme").is_visible()
    assert page.locator("figure.fit .dots").is_visible()


def test_theme(show):
    page = show(a_report(), theme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Light theme").click()
    light = page.evaluate(ground)
    page.get_by_role("button", name="Dark theme").click()
    assert page.evaluate(ground) == dark
    assert sum(map(int, re.findall(r"\d+", dark))) < 150
    assert sum(map(int, re.findall(r"\d+", light))) > 700


def a_long_report():
    long = "a_very_long_name_without_any_blank_" * 3
    return a_report(
        title=long,
        target=long,
        lines=(a_line(long, neighbours=((long, 1.0, 0.5),)), *a_report().lines),
        settings=(("hash", "f" * 200),),
        findings=(long,),
    )


@pytest.mark.parametrize("report", [a_report(), a_long_report(), a_class_report()])
def test_a_phone_needs_no_sideways_scrolling(show, report):
    page = show(report, viewport=PHONE)
    page.locator("#lines .open").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.locator("#lines td.verdict").first.is_visible()
    # What a phone has no column for stands in the opened row.
    assert page.locator("tr.detail dl").get_by_text("Quality").is_visible()
    text = page.locator("figure .left text").first.bounding_box()
    assert text["height"] > 9


def test_the_table_fits_a_phone(show):
    page = show(a_report(), viewport=PHONE)
    region = page.locator("#table-region")
    assert region.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_focus_can_be_seen(show):
    page = show(a_report())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(12):
        width = page.evaluate(
            "parseFloat(getComputedStyle(document.activeElement).outlineWidth)"
        )
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert width >= 2, page.evaluate("document.activeElement.outerHTML")
        assert style != "none"
        page.keyboard.press("Tab")


def test_nothing_moves(show):
    page = show(a_report())
    page.locator("#lines .open").first.click()
    assert page.evaluate(MOVING) == 0


def test_twenty_thousand_labels_stay_responsive(show):
    page = show(a_report(20_000, 300))
    took = page.evaluate(
        """() => {
          const timed = (act) => {
            const start = performance.now();
            act();
            document.body.getBoundingClientRect();
            return performance.now() - start;
          };
          const search = document.getElementById("search");
          const button = document.querySelector('th[data-key="expected"] button');
          const sort = timed(() => button.click());
          search.value = "18–24";
          const find = timed(() => search.dispatchEvent(new Event("input")));
          return { sort, find };
        }"""
    )
    assert page.get_by_role("status").inner_text() == "1–50 of 2000"
    assert took["sort"] + took["find"] < RESPONSE


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("report", [a_report(), a_class_report()], ids=["numbers", "classes"])
def test_axe_finds_nothing(show, report, theme, viewport):
    page = show(report, viewport=viewport, theme=theme)
    page.locator("#lines .open").first.click()
    assert axe_violations(page) == []


def test_print_is_light_and_has_no_controls(show):
    page = show(a_report(), theme="dark")
    page.emulate_media(media="print")
    assert not page.locator("#search").is_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
