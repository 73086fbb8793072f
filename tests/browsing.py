"""Pages in a real browser: headless Chromium, driven by Playwright."""

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}

# How many elements have something that moves by itself or glides.
MOVING = """[...document.querySelectorAll("*")].filter((node) =>
  ["", "::before", "::after"].some((part) => {
    const style = getComputedStyle(node, part || null);
    return parseFloat(style.transitionDuration) > 0 || style.scrollBehavior === "smooth"
      || parseFloat(style.animationDuration) > 0;
  })).length"""

# What the browser refuses a page that tries to call home or to write markup by script.
REFUSED = """async () => {
  const found = [];
  document.addEventListener("securitypolicyviolation",
    (event) => found.push(event.effectiveDirective));
  await fetch("http://localhost:9/").catch(() => {});
  const script = document.createElement("script");
  try { script.textContent = "window.ran = true"; } catch { found.push("trusted"); }
  document.body.append(script);
  try { document.body.innerHTML = "<b>x</b>"; } catch { found.push("markup"); }
  await new Promise((done) => setTimeout(done, 100));
  return [...found, String(window.ran)];
}"""


@contextmanager
def chromium():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: the page was not opened"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: the page was not opened")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opener(browser, folder, render):
    """Opens reports; at the end no error, dialog or outside request may have been seen."""
    contexts, seen = [], []

    def opened(report, viewport=WIDE, theme="light", script=True):
        path = folder / f"report-{len(contexts)}.html"
        path.write_text(render(report), encoding="utf-8")
        context = browser.new_context(
            viewport=viewport,
            color_scheme=theme,
            java_script_enabled=script,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (seen.append("dialog"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                seen.append(f"request: {request.url}")
                if request.url != path.as_uri()
                and not request.url.startswith(("data:", "blob:"))
                else None
            ),
        )
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert seen == []


def check_refusals(browser, folder, text):
    """The policy of a page forbids requests and foreign scripts.

    Not by `opener`: the browser tells each refusal on the console.
    """
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto(path.as_uri())
    refused = page.evaluate(REFUSED)
    context.close()
    assert {"connect-src", "trusted", "markup", "undefined"} <= set(refused)


def axe_violations(page):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="axe-playwright-python is not installed: accessibility was not checked",
    )
    result = axe.Axe().run(page).response
    assert len(result["passes"]) > 20
    return [(v["id"], v["nodes"][0]["html"]) for v in result["violations"]]
