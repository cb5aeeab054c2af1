"""Take the picture of the status page that README.md shows, from the demo under load.

    python -m bench.picture                          # docs/status.png, in seven minutes or so
    python -m bench.picture --minutes 0.5 --dark --width 390 --height 2400 /tmp/phone.png

It starts `twistd llm-gateway --demo --demo-speed 20` on a free port, lets load come and go for a
while, so that there is something to draw, then sends more requests than the simulated engine has
places for, lets Chromium (Debian: `apt install chromium`) take the picture while some of them are
parked, and stops what it started.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 200_000
SPEED = 20
# Prompt tokens and class of each request: four fill the engine, the others park.
REQUESTS = [
    *((9000, "interactive"), (14000, "interactive"), (6000, "interactive"), (20000, "interactive")),
    *((400, "interactive"), (11000, "interactive"), (1500, "batch"), (800, "interactive")),
    *((3000, "batch"), (250, "interactive"), (16000, "interactive")),
]
HEADLESS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
)


def free_port() -> int:
    """A port of loopback that nobody listens on just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def ask(
    port: int,
    tokens: int,
    priority: str,
    *,
    answer_tokens: int,
    wait_seconds: int = 540,
    address: str = "127.0.0.1",
) -> None:
    """Send one streamed chat request and read its answer to the end."""
    words = "word " * (tokens * 4 // 5)
    body = {
        "model": "reasoning",
        "stream": True,
        "max_tokens": answer_tokens,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": words}],
    }
    headers = {"Content-Type": "application/json", "X-Priority": priority}
    headers["Prefer"] = f"wait={wait_seconds}"
    # Each address of loopback that a request comes from is a tenant.
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=120, source_address=(address, 0)
    )
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass  # The demo was stopped: the picture is taken.
    finally:
        connection.close()


def status(port: int) -> dict[str, Any]:
    """The facts of `/status.json`; empty while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/status.json")
        facts: dict[str, Any] = json.loads(connection.getresponse().read())
    except OSError:
        return {}
    finally:
        connection.close()
    return facts


def wait_for(what: str, seconds: float, holds: Any) -> None:
    """Look ten times a second until `holds()` is true."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)


def send(port: int, tokens: int, priority: str, number: int, **options: int) -> threading.Thread:
    """Ask in a thread of its own, for one of a few tenants."""
    thread = threading.Thread(
        target=ask,
        args=(port, tokens, priority),
        kwargs={**options, "address": f"127.0.0.{2 + number % 4}"},
        daemon=True,
    )
    thread.start()
    return thread


def waves(port: int, seconds: float) -> None:
    """Let load come and go: sometimes less than the engine has places for, sometimes more."""
    chance = random.Random(1)
    started = time.monotonic()
    under_way: list[threading.Thread] = []
    number = 0
    while (spent := time.monotonic() - started) < seconds:
        under_way = [one for one in under_way if one.is_alive()]
        wanted = 5 + 4 * math.sin(spent / 25) + 3 * math.sin(spent / 7)
        if len(under_way) < wanted:
            number += 1
            tokens = round(chance.lognormvariate(7, 1))
            # Now and then one that would rather be refused than wait.
            options = {"answer_tokens": chance.randrange(500, 4000)}
            options |= {"wait_seconds": 1} if number % 11 == 0 else {}
            under_way.append(send(port, min(tokens, 20_000), "interactive", number, **options))
        time.sleep(0.3)


def fill(port: int) -> None:
    """Send the requests, one after another, without waiting for answers, until they show."""
    for number, (tokens, priority) in enumerate(REQUESTS):
        send(port, tokens, priority, number, answer_tokens=8000)
        time.sleep(0.4)

    def busy() -> bool:
        facts = status(port)["models"]["reasoning"]
        return len(facts["parked"]) >= 5 and facts["running"] == 4 and facts["kv_usage"] > 0.1

    wait_for("the engine is full and shows it", 20, busy)


def take(url: str, to: Path, *, width: int, height: int, dark: bool) -> None:
    """Let Chromium take a picture."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("there is no Chromium (Debian: apt install chromium)")
    with tempfile.TemporaryDirectory() as profile:
        command = [
            *(browser, *HEADLESS, f"--user-data-dir={profile}", f"--window-size={width},{height}"),
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            # By then the page is live.
            *("--timeout=6000", f"--screenshot={to}", url),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


def main() -> int:
    """Start the demo, fill it, take the picture; returns the exit status."""
    parser = argparse.ArgumentParser(description="Take the picture of the status page.")
    parser.add_argument("to", nargs="?", type=Path, default=ROOT / "docs" / "status.png")
    parser.add_argument("--width", type=int, default=1100)
    parser.add_argument("--height", type=int, default=810)
    parser.add_argument("--minutes", type=float, default=6.0, help="of load before")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    port = free_port()
    twistd = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "llm-gateway"]
    listen = f"tcp:{port}:interface=127.0.0.1"
    with subprocess.Popen(
        [*twistd, "--demo", "--demo-speed", str(SPEED), "--listen", listen],
        stdout=subprocess.DEVNULL,
    ) as demo:
        try:
            wait_for("the demo answers", 20, lambda: demo.poll() is not None or status(port))
            if demo.poll() is not None:
                raise SystemExit("the demo ended by itself")
            waves(port, 60 * options.minutes)
            fill(port)
            url = f"http://127.0.0.1:{port}/status"
            take(url, options.to, width=options.width, height=options.height, dark=options.dark)
        finally:
            # Twice: the first begins the drain, the second ends it. One that has ended gets none.
            demo.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            demo.send_signal(signal.SIGTERM)
            demo.wait(timeout=30)
    size = options.to.stat().st_size
    print(f"{options.to}: {size} bytes")
    return 0 if size < MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
