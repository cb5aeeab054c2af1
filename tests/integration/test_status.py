"""The status page as people see it: real Chromium, a real gateway, an engine that is simulated.

The engine's speed is what these tests need to know, not whether it is real.
"""

from __future__ import annotations

import re
import signal
from http.client import HTTPConnection
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.browser import Tab, chromium
from tests.integration.cache import Unavailable
from tests.integration.case import chat, unavailable
from tests.integration.engines import MODEL, Engine, simulated_engine
from tests.integration.gateway import Gateway
from tests.integration.nginx import Nginx
from tests.integration.processes import free_port, wait_until
from tests.integration.wire import Call
from tests.integration.world import WORLD

HOSTILE = "<img src=x onerror=alert(1)>"
PHONE = {"width": 360, "height": 740}


def configuration(engine: str, **changes: Any) -> dict[str, Any]:
    """An engine that serves, one that is not there, and one without a gate."""
    admission = {"maxInflight": 4, "pollSeconds": 0.5, "keepAliveSeconds": 1}
    away, free = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    models = {
        MODEL: {"upstream": engine, "engine": "vllm", "admission": admission},
        HOSTILE: {"upstream": engine, "engine": "vllm", "upstreamModel": MODEL}
        | {"admission": admission, "aliases": ["n" * 200]},
        "away": {"upstream": away, "engine": "vllm", "admission": admission},
        "free": {"upstream": free},
    }
    return {"models": models, "drainSeconds": 1} | changes


_started: list[Engine] = []


def simulated() -> Engine:
    """The engine that the tests share, idle; started when it is first asked for."""
    if not _started:
        engine = simulated_engine(free_port(), WORLD.logs)
        engine.start()
        engine.wait_ready(60)
        _started.append(engine)
    _started[0].wait_idle()
    return _started[0]


class StatusPageTests(SynchronousTestCase):
    """`/status` in Chromium."""

    def setUp(self) -> None:
        """Have a browser, an engine and a gateway."""
        try:
            self.browser = chromium()
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.engine = simulated()
        self.gateway = Gateway("gateway-status", configuration(self.engine.url), WORLD.logs)
        self.addCleanup(self.gateway.process.kill)
        self.gateway.start()
        self.calls: list[Call] = []
        self.addCleanup(self._leave)

    def _leave(self) -> None:
        for call in self.calls:
            call.leave()

    def tab(self, path: str = "/status", **options: Any) -> Tab:
        tab = self.browser.tab(**options)
        self.addCleanup(tab.close)
        return tab.open(self.gateway.url + path)

    def live(self, tab: Tab) -> Tab:
        tab.expect(lambda one: one.page.inner_text("#live") == "live", 10, "the page is live")
        return tab

    def ask(self, count: int, tokens: int = 6000) -> list[Call]:
        """Send so many streams."""
        body = chat(tokens, stream=True)
        calls = [Call(f"{self.gateway.url}/v1/chat/completions", body) for _ in range(count)]
        self.calls += calls
        return calls

    def fill(self) -> list[Call]:
        """Fill the engine's four places, with streams that last."""
        calls = self.ask(4)
        wait_until(lambda: self.gateway.status()["in_engine"] == 4, 10, "four in the engine")
        return calls

    def test_opens(self) -> None:
        """It opens without a word in the console, from one origin alone, and goes live."""
        tab = self.live(self.tab())
        tab.page.wait_for_timeout(2500)
        self.assertEqual(tab.troubles, [])
        self.assertEqual({url.startswith(self.gateway.url) for url in tab.asked}, {True})
        self.assertIn("Nobody waits: the engine is idle.", tab.text)
        self.assertIn("Gauges never read: the connection was refused; admitting by", tab.text)
        self.assertIn("No gate: requests go straight to the engine", tab.text)
        # Names are text, and models that share an engine stand once.
        self.assertIn(HOSTILE, tab.text)
        self.assertEqual(tab.page.locator("section").count(), 3)
        self.assertEqual(tab.page.locator("img").count(), 0)

    def test_park_and_pass(self) -> None:
        """A request that parks shows, with why, and shows no more when it has passed."""
        tab = self.live(self.tab())
        tab.page.evaluate("window.loadedOnce = true")
        running = self.fill()
        self.ask(2)
        tab.expect(lambda one: "2 wait: the engine runs 4 of 4" in one.text, 5, "two wait")
        self.assertIn("◆ waiting", tab.text)
        self.assertEqual(tab.page.locator("td[data-label='waits for']").count(), 2)
        self.assertRegex(tab.page.title(), "^2 wait: ")
        for call in running[:2]:
            call.leave()
        tab.expect(lambda one: "Nobody waits: the engine runs 4 of 4" in one.text, 5, "all pass")
        self.assertTrue(tab.page.evaluate("window.loadedOnce"))
        self.assertEqual(tab.troubles, [])

    def test_survives_a_restart(self) -> None:
        """While the gateway is away it says so, and goes live again by itself."""
        tab = self.live(self.tab())
        tab.page.evaluate("window.loadedOnce = true")
        self.gateway.process.kill()
        tab.expect(lambda one: one.page.locator("#live.off").count(), 30, "it says so")
        self.assertIn("the gateway does not answer", tab.text)
        self.gateway.start()
        self.live(tab)
        self.assertTrue(tab.page.evaluate("window.loadedOnce"))
        self.assertEqual([one for one in tab.troubles if "Content Security" in one], [])

    def test_an_update(self) -> None:
        """A page of an older build loads itself anew, once: page and stream may differ for long."""
        loads = []

        def older(route: Any) -> None:
            loads.append(route.request.url)
            answer = route.fetch()
            route.fulfill(response=answer, body=re.sub("data-build=.", "\\g<0>x", answer.text()))

        tab = self.browser.tab()
        self.addCleanup(tab.close)
        tab.page.route("**/status", older)
        self.live(tab.open(f"{self.gateway.url}/status"))
        tab.page.wait_for_timeout(4000)
        self.assertEqual(len(loads), 2)
        self.live(tab)

    def test_drain(self) -> None:
        """A drain is seen, and no watcher holds it up."""
        self.gateway.process.signal(signal.SIGTERM)
        self.assertEqual(self.gateway.process.wait(15), 0)
        self.gateway.start()
        tab = self.live(self.tab())
        self.gateway.process.signal(signal.SIGTERM)
        tab.expect(lambda one: "Draining" in one.text, 3, "the drain shows")
        self.assertEqual(self.gateway.process.wait(15), 0)

    def test_without_script(self) -> None:
        """Without script it is whole, and loads itself again."""
        tab = self.tab(java_script_enabled=False)
        self.assertIn("Nobody waits: the engine is idle.", tab.text)
        self.assertIn("loaded again every 5 s", tab.text)
        self.fill()
        self.ask(1)
        tab.expect(lambda one: "1 waits: the engine runs 4 of 4" in one.text, 12, "it shows")
        self.assertEqual(tab.troubles, [])
        tab.page.click("text=Settings in force")
        self.assertIn("models.reasoning.admission.maxInflight", tab.text)

    def test_phone(self) -> None:
        """On a narrow screen nothing scrolls sideways, whatever is unfolded."""
        self.fill()
        self.ask(3)
        tab = self.live(self.tab(viewport=PHONE, is_mobile=True, has_touch=True))
        tab.expect(lambda one: "3 wait" in one.text, 5, "three wait")
        for summary in tab.page.locator("summary").all():
            summary.click()
        widest = "Math.max(...[...document.querySelectorAll('*')].map(e => e.scrollWidth))"
        wide = tab.page.evaluate("document.scrollingElement.scrollWidth")
        self.assertLessEqual(wide, PHONE["width"], tab.page.evaluate(widest))

    def test_contrast(self) -> None:
        """Every text stands out from its ground, by day and by night (WCAG 2, level AA)."""
        self.fill()
        self.ask(2)
        for scheme in ("light", "dark"):
            tab = self.live(self.tab(color_scheme=scheme))
            tab.expect(lambda one: "2 wait" in one.text, 5, "two wait")
            for summary in tab.page.locator("summary").all():
                summary.click()
            ratio, text = tab.least_contrast()
            self.assertGreaterEqual(ratio, 4.5, f"{scheme}: {text!r}")
        grounds = {
            scheme: self.tab(color_scheme=scheme).page.evaluate(
                "getComputedStyle(document.documentElement).backgroundColor"
            )
            for scheme in ("light", "dark")
        }
        self.assertNotEqual(grounds["light"], grounds["dark"])

    def test_accessible(self) -> None:
        """axe finds nothing wrong, wide or narrow, by day or by night."""
        self.fill()
        self.ask(2)
        for options in (
            {"viewport": PHONE},
            {"color_scheme": "dark"},
        ):
            tab = self.live(self.tab(bypass_csp=True, **options))
            tab.expect(lambda one: "2 wait" in one.text, 5, "two wait")
            for summary in tab.page.locator("summary").all():
                summary.click()
            try:
                self.assertEqual(tab.accessibility(), [])
            except Unavailable as fault:
                raise unavailable(fault) from None

    def test_keyboard(self) -> None:
        """All can be reached and unfolded by keys, and what is unfolded stays so when live."""
        tab = self.live(self.tab())
        reached = []
        for _ in range(20):
            tab.page.keyboard.press("Tab")
            reached.append(tab.page.evaluate("document.activeElement.textContent"))
        for word in ("JSON", MODEL, "away", "Tenants, rates, replicas"):
            self.assertTrue(any(word in one for one in reached), f"{word}: {reached}")
        tab.page.locator("summary").last.focus()
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_timeout(2500)
        self.assertTrue(tab.page.locator("details").last.get_attribute("open") is not None)
        focused = tab.page.evaluate("document.activeElement.textContent")
        self.assertIn("Settings in force", focused)

    def test_one_voice(self) -> None:
        """Only a change of the connection is announced: nothing speaks every second."""
        tab = self.live(self.tab())
        loud = tab.page.locator("[aria-live], [role=status], [role=alert], [role=log]")
        self.assertEqual(loud.count(), 1)
        tab.page.evaluate(
            "window.said = 0; new MutationObserver(() => window.said++)"
            ".observe(document.getElementById('live'), {subtree: true, childList: true,"
            " characterData: true})"
        )
        tab.page.wait_for_timeout(3500)
        self.assertEqual(tab.page.evaluate("window.said"), 0)

    def test_too_many_watch(self) -> None:
        """One tab too many is told so, and is kept current all the same."""
        watchers = [HTTPConnection("127.0.0.1", self.gateway.port) for _ in range(20)]
        for watcher in watchers:
            self.addCleanup(watcher.close)
            watcher.request("GET", "/status/events")
            self.assertEqual(watcher.getresponse().status, 200)
        late = self.tab()
        late.expect(lambda one: "not live (too many watch" in one.text, 15, "it says so")
        self.fill()
        self.ask(1)
        late.expect(lambda one: "1 waits: the engine" in one.text, 15, "it is kept current")
        watchers[0].close()
        self.live(late)

    def test_settings_follow_a_reload(self) -> None:
        """After SIGHUP the settings on an open page are those in force."""
        tab = self.live(self.tab())
        tab.page.locator("summary").last.click()
        self.gateway.configure(configuration(self.engine.url, maxConnections=777))
        self.gateway.reload()
        tab.expect(lambda one: re.search(r"maxConnections value 777|777", one.text), 5, "it shows")

    def test_behind_nginx(self) -> None:
        """Below a prefix, through an nginx that speaks HTTP/1.0, it is live all the same."""
        try:
            nginx = Nginx(self.gateway.url, WORLD.logs / "nginx-status")
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.addCleanup(nginx.process.stop)
        nginx.start()
        tab = self.browser.tab()
        self.addCleanup(tab.close)
        self.live(tab.open(f"{nginx.url}/old/status"))
        self.fill()
        tab.expect(lambda one: "the engine runs 4 of 4" in one.text, 5, "it is kept current")
        self.assertEqual(tab.troubles, [])

    def test_with_a_slash(self) -> None:
        """`/status/` is the same page."""
        tab = self.live(self.tab("/status/"))
        self.assertEqual(tab.troubles, [])
