"""The page of a counted camera as text: what it says, escapes, how large it gets."""

import base64
import re
from dataclasses import dataclass, replace

import cv2
import numpy as np
import pytest

from activehuber.crowd.page import CrowdReport, FrameCounts, Picture, render
from tests.outline import NASTY, SCRIPT, Outline, check_policy

LIMIT = 3_000_000


def jpeg(image):
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes()


def a_picture(number, height=240, width=320):
    """Some discs on noise, and the same with the discs tinted."""
    rng = np.random.default_rng(number)
    image = rng.normal(120, 6, (height, width, 3)).clip(0, 255).astype(np.uint8)
    overlay = image.copy()
    for x, y, size in rng.integers([0, 0, 5], [width, height, 20], (12, 3)):
        place = (int(x), int(y))
        cv2.circle(image, place, int(size), rng.integers(0, 255, 3).tolist(), -1)
        cv2.circle(overlay, place, int(size), (60, 60, 230), -1)
    return Picture(number, jpeg(image), jpeg(cv2.addWeighted(image, 0.5, overlay, 0.5, 0)))


@dataclass(frozen=True)
class FrameLine:
    """One frame of a `FrameCounts`, None where it has NaN."""

    number: int
    given: float | None
    count: float | None
    lower: float | None
    upper: float | None
    verdict: str


def counts_of(lines):
    """All frames as a report has them."""
    names = ("given", "count", "lower", "upper")
    columns = [[getattr(line, name) for line in lines] for name in names]
    return FrameCounts(
        np.array([line.number for line in lines], dtype=int),
        *(np.array(column, dtype=float) for column in columns),
        np.array([line.verdict == "flagged" for line in lines], dtype=bool),
    )


def some_frames(n=400, n_given=160, wrong=(37, 90, 141)):
    """n frames, the first n_given of them with a count, those numbered in `wrong` far off."""
    rng = np.random.default_rng(0)
    number = np.arange(1, n + 1)
    truth = 32 + 9 * np.sin(number * 14 / n) + rng.normal(size=n).cumsum() * 3 / np.sqrt(n)
    count = truth + rng.normal(size=n)
    given = np.round(truth)
    lines = []
    for k in range(n):
        is_wrong, is_given = number[k] in wrong, k < n_given
        lines.append(
            FrameLine(
                int(number[k]),
                given[k] + (40 if is_wrong else 0) if is_given else None,
                count[k],
                count[k] - 3.5,
                count[k] + 3.5,
                "flagged" if is_wrong else "kept" if is_given else "uncounted",
            )
        )
    return tuple(lines)


def a_report(frames=None, **changes):
    frames = some_frames() if frames is None else frames
    flagged = [line.number for line in frames if line.verdict == "flagged"]
    values = {
        "title": "camera 1",
        "source": "frames/",
        "facts": (("Frames", f"{len(frames):,}"), ("Given", "160"), ("Mean count", "32.1")),
        "target_names": ("count",),
        "frames": counts_of(frames),
        "flagged": tuple(a_picture(k) for k in flagged[:24]),
        "samples": tuple(a_picture(line.number) for line in frames[:: len(frames) // 3 + 1]),
        "skipped": ("frame 12 (seq_000012.jpg) cannot be read",),
        "settings": (("seed", "0"), ("grid", "8 × 8")),
        "background": a_picture(0).image,
    }
    return CrowdReport(**(values | changes))


def few_people():
    """Twelve frames, six counts, all kept; two targets."""
    frames = tuple(
        FrameLine(k, k % 5 + 1.0 if k % 2 else None, k % 5 + 1.3, k % 5 + 0.2, k % 5 + 2.4,
                  "kept" if k % 2 else "uncounted")
        for k in range(1, 13)
    )  # fmt: skip
    return a_report(frames, skipped=(), target_names=("left", "right"))


def pure_counting():
    """A new video: no counts given."""
    frames = tuple(replace(f, given=None, verdict="uncounted") for f in some_frames())
    return a_report(frames, samples=(), skipped=(), settings=())


def nasty_report():
    return a_report(
        title=NASTY,
        source=SCRIPT,
        facts=((NASTY, SCRIPT),),
        target_names=(NASTY, SCRIPT),
        flagged=(a_picture(37),),
        samples=(a_picture(1),),
        skipped=(SCRIPT, "$title ${data}"),
        settings=((SCRIPT, NASTY),),
        remarks=(SCRIPT, NASTY),
        table=SCRIPT,
        flagged_table=SCRIPT,
    )


class PageOutline(Outline):
    VOID = Outline.VOID | {"img"}


def said(report):
    """The text of the page."""
    return re.sub(r"\s+", " ", "".join(PageOutline(render(report)).text))


def figure_of(page):
    return page.split('<figure class="counts"')[1].split("</figure>")[0]


def runs_of(page, name):
    """Runs of a path of the curve, each an array (n_points, 2) of places in 0 … 1000."""
    path = re.search(f'<path class="{name}" d="([^"]*)"', page)[1]
    parts = [part.rstrip("Z").removesuffix("h0") for part in path.split("M")[1:]]
    return [np.array(part.split(), dtype=float).reshape(-1, 2) for part in parts]


def n_dots(page):
    return len(re.findall(r"M\d+ \d+h0", figure_of(page).split('class="dots')[1]))


def n_crosses(page):
    return figure_of(page).count('<use href="#cross"')


def a_line(number, given=None, count=31.0, lower=27.0, upper=35.0, verdict=None):
    verdict = verdict or ("uncounted" if given is None else "kept")
    return FrameLine(number, given, count, lower, upper, verdict)


@pytest.mark.parametrize(
    ("frames", "headline"),
    [
        (some_frames(), "3 of 160 given counts are flagged"),
        ((a_line(1, 90.0, verdict="flagged"),), "1 of 1 given count is flagged"),
        (some_frames(wrong=()), "All 160 given counts are kept"),
        ((a_line(1, 30.0),), "The only given count is kept"),
        (some_frames(n_given=0), "400 frames are counted"),
        ((a_line(1),), "1 frame is counted"),
        ((a_line(1), a_line(2, count=None, verdict="skipped")), "1 frame is counted"),
    ],
)
def test_headline(frames, headline):
    page = render(a_report(frames, samples=(), flagged=()))
    assert f"<h1>{headline}" in page
    assert f"<title>{headline} – camera 1</title>" in page


def test_a_model_that_is_no_better_than_the_mean_is_the_headline():
    page = said(a_report(believable=False))
    assert "Other stretches of time are counted no better than by the mean" in page
    assert "counts are kept" not in page.split("Counts over time")[0]


def test_everything_that_was_said_is_there():
    text = said(a_report())
    for sentence in (
        "Crowd count of camera 1, from frames/",
        "Mean count",
        "frame 12 (seq_000012.jpg) cannot be read",
        "8 × 8",
        "The count and interval of every frame are in counts.csv, not on this page.",
        "It holds pictures of the camera",
    ):
        assert sentence in text


def test_a_flagged_count_stands_beside_what_was_expected():
    frames = (a_line(411, 30.0), a_line(412, 90.0, verdict="flagged"))
    text = said(a_report(frames, flagged=(a_picture(412),), samples=(a_picture(411),)))
    assert "Frame 412: given 90, expected 31 (27–35)" in text
    assert "Frame 411: given 30, counted 31 (27–35)" in text


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        (a_line(7, 2.5, 3.24, 1.0, 4.96), "given 2.5, expected 3.2 (1.0–5.0)"),
        (a_line(7, 9.0, 0.5, -0.7, 1.7), "given 9, expected 0.5 (−0.7 to 1.7)"),
        (a_line(7, 90.0, 31.0, None, 35.0), "given 90, expected 31"),
        (a_line(7, 90.0, 31.0, 27.0, float("inf")), "given 90, expected 31"),
    ],
)
def test_numbers_of_a_card(line, heading):
    frames = (replace(line, verdict="flagged"),)
    page = render(a_report(frames, flagged=(a_picture(7),)))
    found = re.search(r'<h3 id="frame-7-title">(.*?)</h3>', page)[1]
    assert re.sub("<[^>]*>", "", found) == f"Frame 7: {heading}"


def test_pictures_are_in_the_page_as_they_came():
    picture = a_picture(37)
    page = render(a_report(flagged=(picture,)))
    card = page.split('id="frame-37"')[1].split("</article>")[0]
    found = re.findall(r'src="data:image/jpeg;base64,([^"]*)" alt="([^"]*)"', card)
    assert [base64.b64decode(data) for data, _ in found] == [picture.image, picture.overlay]
    assert [alt for _, alt in found] == ["Frame 37", "Frame 37, the foreground tinted"]


def test_cards_keep_the_order_they_came_in():
    pictures = tuple(a_picture(k) for k in (141, 37, 90))
    found = re.findall(r'id="frame-(\d+)"', render(a_report(flagged=pictures)))
    assert found == ["141", "37", "90"]


def test_flagged_counts_without_a_picture_are_listed_farthest_first():
    frames = tuple(
        a_line(k, 40.0 + k, verdict="flagged" if k < 5 else "kept") for k in range(1, 9)
    )
    text = said(a_report(frames, flagged=(a_picture(2),), samples=()))
    assert "3 more counts are flagged; no picture here" in text
    assert re.findall(r"frame (\d): given", text) == ["4", "3", "1"]


def test_when_all_are_kept():
    text = said(few_people())
    assert "Every given count was kept." in text
    assert "No frame was skipped." in text
    assert "Counts on this page are the sum of left and right." in text
    assert "are flagged" not in text


def test_pure_counting():
    page = render(pure_counting())
    text = said(pure_counting())
    assert "No counts were given: there was nothing to flag." in text
    assert 'class="given"' not in page
    assert n_crosses(page) == 0


def test_the_curve_goes_through_the_counts():
    counts = [10.0, 20.0, 15.0]
    frames = tuple(a_line(k + 1, None, c, c - 5, c + 5) for k, c in enumerate(counts))
    page = render(a_report(frames))
    (line,), (band,) = runs_of(page, "line"), runs_of(page, "interval")
    np.testing.assert_allclose(line[:, 0], [1000 / 6, 500, 5000 / 6], atol=0.1)
    # Down is more in SVG: 20 is above 15, and halfway between 10 and 20 lies 15.
    assert line[1, 1] < line[2, 1] < line[0, 1]
    assert line[2, 1] == pytest.approx((line[0, 1] + line[1, 1]) / 2, abs=0.2)
    assert len(band) == 6
    np.testing.assert_allclose((band[:3, 1] + band[:2:-1, 1]) / 2, line[:, 1], atol=0.2)
    ticks = figure_of(page).split('class="below"')[1]
    assert re.findall(r">(\d[^<]*)</text>", ticks) == ["1", "2", "3"]


def test_the_curve_is_cut_where_frames_are_skipped_or_missing():
    skipped = {10, 11, 30}
    numbers = [*range(1, 51), *range(90, 101)]
    frames = tuple(
        a_line(k, None, None, None, None, "skipped") if k in skipped else a_line(k)
        for k in numbers
    )
    runs = runs_of(render(a_report(frames)), "line")
    assert [len(run) for run in runs] == [9, 18, 20, 11]


def test_frames_taken_now_and_then_are_joined():
    frames = tuple(a_line(k) for k in range(1, 500, 10))
    assert [len(run) for run in runs_of(render(a_report(frames)), "line")] == [50]


def test_a_frame_between_two_holes_is_a_dot():
    frames = (a_line(1), a_line(2, count=None, verdict="skipped"), a_line(3))
    page = render(a_report(frames, samples=()))
    assert [len(run) for run in runs_of(page, "line")] == [1, 1]
    assert re.search(r'class="line" d="M[^"]*h0M[^"]*h0"', page)


def test_absent_intervals_leave_no_band_but_a_line():
    frames = tuple(a_line(k, None, 30.0 + k, None, float("nan")) for k in range(1, 9))
    page = render(a_report(frames))
    assert runs_of(page, "interval") == []
    assert len(runs_of(page, "line")[0]) == 8
    assert "nan" not in said(a_report(frames)).lower()


def test_an_absurd_count_does_not_squeeze_the_curve():
    frames = list(some_frames())
    frames[36] = replace(frames[36], given=1e9)
    page = render(a_report(tuple(frames)))
    assert "1 given count lies farther out; it is drawn at the edge." in page
    (line,) = runs_of(page, "line")
    assert np.ptp(line[:, 1]) > 100


def test_two_thousand_frames_with_all_their_pictures():
    frames = some_frames(2000, 800, tuple(range(20, 800, 24)))
    report = a_report(frames, samples=tuple(a_picture(k) for k in range(1, 2000, 250)))
    page = render(report)
    assert len(page.encode()) < LIMIT
    assert (len(report.flagged), len(report.samples)) == (24, 8)
    assert page.count("<img ") == 2 * (24 + 8) + 1
    assert (n_dots(page), n_crosses(page)) == (800 - 33, 33)
    assert len(runs_of(page, "line")[0]) == 2000
    assert "9 more counts are flagged" in page


def test_two_hundred_thousand_frames():
    frames = list(some_frames(200_000, 20_000, frozenset(range(20, 20_000, 15))))
    frames[123_456] = replace(frames[123_456], count=60.0)
    page = render(a_report(tuple(frames)))
    assert len(page.encode()) < LIMIT
    assert (n_dots(page), n_crosses(page)) == (3000, 800)
    (line,) = runs_of(page, "line")
    assert len(line) == 3000
    # Thinning never hides a single odd frame.
    assert line[line[:, 1].argmin(), 0] == pytest.approx(1000 * 123_456 / 200_000, abs=1)
    for sentence in (
        "200,000 frames are drawn in 1,500 steps",
        "3,000 of 18,668 given counts that are kept are drawn.",
        "800 of 1,332 given counts that are flagged are drawn.",
        "1,308 more counts are flagged",
        "… and 808 nearer to the model.",
    ):
        assert sentence in page


def test_pictures_and_texts_that_are_too_large_give_way():
    rng = np.random.default_rng(0)
    noise = jpeg(rng.integers(0, 255, (240, 320, 3)).astype(np.uint8))
    heavy = '"' * 5_000
    wrong = tuple(range(1, 41))
    page = render(
        a_report(
            some_frames(wrong=wrong),
            flagged=tuple(Picture(k, noise, noise) for k in wrong),
            samples=tuple(Picture(k, noise, noise) for k in range(100, 120)),
            skipped=(heavy,) * 300,
            settings=((heavy, heavy),) * 300,
            facts=((heavy, heavy),) * 300,
            background=noise,
        )
    )
    assert len(page.encode()) < LIMIT
    n_cards = page.count('id="frame-') // 2
    n_samples = page.count('id="sample-') // 2
    assert 5 < n_cards < 40
    assert 0 < n_samples < 20
    assert f"{40 - n_cards} more counts are flagged; no picture here" in page
    assert f"To keep the page small, {20 - n_samples} cards are left out." in page


@pytest.mark.parametrize("make", [a_report, few_people, pure_counting])
def test_page_is_well_formed_and_asks_for_nothing(make):
    page = render(make())
    outline = PageOutline(page)
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for name, attributes in outline.elements:
        assert not {"srcset", "style", "onclick", "action"} & set(attributes)
        if "href" in attributes:
            assert attributes["href"].startswith(("#", "data:,")), name
        if "src" in attributes:
            assert attributes["src"].startswith("data:image/jpeg;base64,")
    for word in ("http:", "https:", "url(", "@import"):
        assert word not in page


def test_policy_names_exactly_our_script_and_style():
    check_policy(render(a_report()))


def test_text_of_the_user_is_inert_and_survives():
    outline = PageOutline(render(nasty_report()))
    assert outline.count("script") == 1
    sources = [a["src"] for name, a in outline.elements if name == "img"]
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    text = "".join(outline.text)
    for survived in (NASTY, SCRIPT, "$title ${data}"):
        assert survived in text


def test_text_that_is_no_unicode_is_replaced():
    page = render(a_report(title="a\udcffb\x00c\u202ed", flagged=(a_picture(37),)))
    page.encode()
    assert "a b c d" in page


def test_render_is_pure():
    assert render(a_report()) == render(a_report())
