"""Chromium, as people open the status page with it."""

from __future__ import annotations

import atexit
import importlib
import shutil
from collections.abc import Callable
from typing import Any

from tests.integration.cache import Unavailable
from tests.integration.node import modules
from tests.integration.processes import wait_until

AXE_VERSION = "4.14.1"

# In the page: the least contrast of any text, as WCAG 2 computes it, with what is see-through laid
# over what is behind it.
_LEAST_CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const over = ([r, g, b, a = 1], below) =>
    [r, g, b].map((one, index) => a * one + (1 - a) * below[index]);
  const ground = (element) => {
    const above = [];
    for (let one = element; one; one = one.parentElement)
      above.unshift(parse(getComputedStyle(one).backgroundColor));
    return above.reduce((below, one) => over(one, below), [255, 255, 255]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((one) => {
      const part = one / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let least = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.nodeValue.trim();
    const element = walker.currentNode.parentElement;
    if (!text || element.closest("script, noscript") || !element.getClientRects().length) continue;
    const below = ground(element);
    const inks = [element.closest("svg") ? null : parse(getComputedStyle(element).color)];
    for (const ink of inks.filter(Boolean)) {
      const [one, other] = [luminance(over(ink, below)), luminance(below)];
      const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      if (ratio < least[0]) least = [ratio, text];
    }
  }
  return least;
}"""


class Tab:
    """One page in a browser context of its own.

    Attributes:
        page: Playwright's page.
        troubles: what the console called an error (violations of the content security policy are
            among them), uncaught exceptions, dialogs.
        asked: every address that was asked for.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self.page = context.new_page()
        self.troubles: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda fault: self.troubles.append(str(fault)))
        self.page.on("dialog", self._asked_back)
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, url: str) -> Tab:
        """Load an address and wait until it is there."""
        self.page.goto(url, wait_until="load")
        return self

    @property
    def text(self) -> str:
        """What is to be read, on one line."""
        return " ".join(str(self.page.inner_text("body")).split())

    def expect(self, condition: Callable[[Tab], object], seconds: float, what: str) -> None:
        """Wait until the condition holds of this tab; the page lives on meanwhile.

        Raises:
            AssertionError: it does not in that time; the message shows what there is to read.
        """

        def holds() -> object:
            # Playwright's events come only while it is being called.
            self.page.wait_for_timeout(50)
            return condition(self)

        try:
            wait_until(holds, seconds, what)
        except AssertionError as fault:
            raise AssertionError(f"{fault}\n{self.text}\n{self.troubles}") from None

    def least_contrast(self) -> tuple[float, str]:
        """The least contrast ratio of any text to what is behind it, and that text."""
        ratio, text = self.page.evaluate(_LEAST_CONTRAST)
        return float(ratio), str(text)

    def accessibility(self) -> list[str]:
        """What axe finds wrong by WCAG 2.1, levels A and AA; of a tab with `bypass_csp=True`.

        Raises:
            Unavailable: axe cannot be had.
        """
        self.page.add_script_tag(path=str(modules("axe-core", AXE_VERSION) / "axe-core/axe.min.js"))
        found = self.page.evaluate(
            "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice']})"
        )
        assert found["passes"], found
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]

    def close(self) -> None:
        """Close it and its context."""
        self._context.close()

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type}: {message.text}")

    def _asked_back(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()


class Chromium:
    """The browser, started once.

    Raises:
        Unavailable: there is no Chromium or no Playwright here.
    """

    def __init__(self) -> None:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        if program is None:
            raise Unavailable("there is no chromium on PATH (Debian: apt-get install chromium)")
        try:
            # By name: it is not installed where the types are checked.
            playwright = importlib.import_module("playwright.sync_api")
        except ImportError as fault:
            raise Unavailable(f"{fault}: pip install '.[integration]'") from None
        self._playwright = playwright.sync_playwright().start()
        self._browser = self._playwright.chromium.launch(
            executable_path=program,
            # As root in a container Chromium has no sandbox to be had.
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        atexit.register(self.stop)

    def tab(self, **options: Any) -> Tab:
        """A new tab; options are those of Playwright's `new_context`."""
        return Tab(self._browser.new_context(**options))

    def stop(self) -> None:
        """End it."""
        self._browser.close()
        self._playwright.stop()


_started: list[Chromium] = []


def chromium() -> Chromium:
    """The browser that the tests share, started when it is first asked for.

    Raises:
        Unavailable: see `Chromium`.
    """
    if not _started:
        _started.append(Chromium())
    return _started[0]
