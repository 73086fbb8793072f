"""The page of a counted camera in a real browser."""

import re
from dataclasses import replace

import pytest

from activehuber.crowd.page import render
from tests.browsing import (
    MOVING,
    PHONE,
    WIDE,
    axe_violations,
    check_refusals,
    opener,
)
from tests.crowd.test_page import (
    a_picture,
    a_report,
    few_people,
    nasty_report,
    pure_counting,
    some_frames,
)
from tests.outline import NASTY, SCRIPT

pytestmark = pytest.mark.slow


@pytest.fixture
def show(browser, tmp_path):
    with opener(browser, tmp_path, render) as show:
        yield show


def test_every_picture_is_seen(show):
    page = show(a_report())
    sizes = page.evaluate(
        "Promise.all([...document.images].map(async (image) => {"
        "await image.decode(); return [image.naturalWidth, image.clientWidth > 200]; }))"
    )
    # Three flagged frames and three samples, each twice, and the background.
    assert sizes == [[320, True]] * 13


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(show, theme, viewport):
    assert axe_violations(show(a_report(), viewport=viewport, theme=theme)) == []


@pytest.mark.parametrize("make", [few_people, pure_counting])
def test_axe_finds_nothing_where_nothing_is_flagged(show, make):
    assert axe_violations(show(make(), viewport=PHONE, theme="dark")) == []


def test_texts_of_the_user_are_inert(show):
    page = show(nasty_report())
    assert page.locator("header .name").all_inner_texts() == [NASTY, SCRIPT]
    assert page.evaluate("document.scripts.length") == 1
    pictures = "[...document.images].every((image) => image.src.startsWith('data:image/jpeg'))"
    assert page.evaluate(pictures)


def test_policy_forbids_requests_and_foreign_scripts(browser, tmp_path):
    check_refusals(browser, tmp_path, render(a_report()))


def test_a_cross_leads_to_its_card(show):
    page = show(a_report())
    assert page.locator("use[data-line]").count() == 3
    page.locator('use[data-line="90"]').click()
    assert page.evaluate("document.activeElement.id") == "frame-90"
    assert 0 <= page.locator("#frame-90").bounding_box()["y"] < WIDE["height"] / 2


def test_a_cross_without_a_card_leads_nowhere(show):
    page = show(a_report(flagged=()))
    assert page.locator("figure.counts use").count() == 3
    assert page.locator("use[data-line]").count() == 0


def long_report():
    long = "a_very_long_name_without_any_blank_" * 3
    return a_report(
        title=long,
        source=long,
        facts=((long, long),),
        flagged=(a_picture(37),),
        skipped=(long,),
        settings=((long, "f" * 200),),
        table=long,
    )


@pytest.mark.parametrize("make", [a_report, long_report, few_people])
def test_a_phone_needs_no_sideways_scrolling(show, make):
    page = show(make(), viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    # Text of the picture keeps its size, and frames are wide enough to count in them.
    assert page.locator("figure .left text").first.bounding_box()["height"] > 9
    assert page.locator(".card img").first.bounding_box()["width"] > 280


def test_frame_numbers_stay_inside_the_picture(show):
    page = show(a_report(some_frames(3000)), viewport=PHONE)
    edge = page.locator("figure.counts").bounding_box()
    for label in page.locator("figure.counts .below text").all():
        box = label.bounding_box()
        assert box["x"] + box["width"] < edge["x"] + edge["width"] - 4


def test_keyboard(show):
    frames = some_frames(400, 160, tuple(range(1, 60)))
    page = show(a_report(frames))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "flagged"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    style = "getComputedStyle(document.activeElement)"
    assert page.evaluate(f"parseFloat({style}.outlineWidth)") >= 2
    assert page.evaluate(f"{style}.outlineStyle") != "none"
    assert not page.locator(".rest").is_visible()
    page.keyboard.press("Enter")
    assert page.locator(".rest li").count() == 59 - 24
    assert page.locator(".rest").is_visible()


def test_theme(show):
    page = show(a_report(), theme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Light theme").click()
    light = page.evaluate(ground)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150
    assert sum(map(int, re.findall(r"\d+", light))) > 700


def test_without_script(show):
    page = show(a_report(), script=False)
    assert page.locator("h1").inner_text() == "3 of 160 given counts are flagged."
    assert page.locator(".card").count() == 7
    assert not page.locator("#theme").is_visible()


def test_nothing_moves(show):
    assert show(a_report()).evaluate(MOVING) == 0


def test_print_shows_the_list_that_is_closed(show):
    frames = some_frames(400, 160, tuple(range(1, 60)))
    page = show(replace(a_report(frames), flagged=()), theme="dark")
    assert not page.locator(".rest li").first.is_visible()
    page.emulate_media(media="print")
    assert page.locator(".rest li").first.is_visible()
    assert not page.locator("#theme").is_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
