"""Pages as text: their elements, their policy, and texts that try to break out of them."""

import base64
import hashlib
import re
from html.parser import HTMLParser

NASTY = '"><img src=x onerror=alert(1)>'
SCRIPT = "<script>alert(1)</script>"


class Outline(HTMLParser):
    """Checks that tags close in order, and collects elements, attributes and text."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    def count(self, tag, **attributes):
        return sum(
            name == tag and all(found.get(k) == v for k, v in attributes.items())
            for name, found in self.elements
        )


def check_policy(page):
    """It names exactly the script and the style of the page."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for element in ("script", "style"):
        text = re.search(f"<{element}>(.*?)</{element}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
