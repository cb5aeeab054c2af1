"""nginx in front of the gateway, as its users have it."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.integration.cache import Unavailable
from tests.integration.processes import Process, free_port
from tests.integration.wire import get

PUBLISHED = Path(__file__).parents[2] / "docs" / "nginx" / "nginx.conf"
HOST = "localhost"

IMPATIENT_SECONDS = 5

# All but what is said here has nginx' own defaults: buffering is on, and answers are read for 60 s.
_CONFIG = """\
daemon off;
{user}
worker_processes 1;
error_log stderr info;
pid {directory}/nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;

    gzip on;
    gzip_types application/json text/event-stream;

    server {{
        listen 127.0.0.1:{port};

        location / {{
            proxy_pass {upstream};
            proxy_http_version 1.1;
        }}
        # HTTP/1.0 to the gateway, nginx' own default.
        location /old/ {{
            proxy_pass {upstream}/;
        }}
        # The same without what the gateway says of buffering: so would a stream arrive.
        location /deaf/ {{
            proxy_pass {upstream}/;
            proxy_ignore_headers X-Accel-Buffering;
        }}
        location /impatient/ {{
            proxy_pass {upstream}/;
            proxy_http_version 1.1;
            proxy_read_timeout {impatient}s;
        }}
        location = /nginx {{
            return 204;
        }}
    }}
}}
"""


class Nginx:
    """An nginx before one address.

    Args:
        upstream: the gateway's base URL.
        directory: for its files.

    Raises:
        Unavailable: there is no nginx here.
    """

    def __init__(self, upstream: str, directory: Path) -> None:
        program = _nginx()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        home = directory / "nginx"
        home.mkdir(parents=True, exist_ok=True)
        text = _CONFIG.format(
            directory=home, port=port, upstream=upstream, user=_user(), impatient=IMPATIENT_SECONDS
        )
        file = home / "nginx.conf"
        file.write_text(text)
        self.process = Process("nginx", [program, "-p", str(home), "-c", str(file)], directory)

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            NotReady: it does not in time, or has ended.
        """
        self.process.start()
        self.process.wait_ready(self._answers, 20.0)

    def _answers(self) -> bool:
        try:
            return get(f"{self.url}/nginx").status == 204
        except OSError:
            return False


class Published:
    """nginx with docs/nginx/nginx.conf, of which addresses, ports and paths are others.

    Attributes:
        url: where clients connect, by TLS; its certificate is for the name alone.
        plain: where those connect who do not know of TLS.
        process: the master.
        home: where its logs are, and its temporary files would be.
        file: the configuration that it runs with.

    Args:
        upstream: the gateway's HOST:PORT.
        directory: for its files.
        certificate: a file with certificate and key, for `localhost`.
        name: of its process and its own directory.
        changes: what else is different: text of the file -> what stands in its place.

    Raises:
        Unavailable: there is no nginx here.
        AssertionError: the file does not have what is to be replaced.
    """

    def __init__(
        self,
        upstream: str,
        directory: Path,
        certificate: Path,
        *,
        name: str = "nginx-published",
        changes: Mapping[str, str] | None = None,
    ) -> None:
        self.program = _nginx()
        port, plain = free_port(), free_port()
        self.url, self.plain = f"https://{HOST}:{port}", f"http://127.0.0.1:{plain}"
        self.home = directory / name
        self.home.mkdir(parents=True, exist_ok=True)
        self.file = self.home / "nginx.conf"
        local = {
            "user www-data;": _user(),
            "pid /run/nginx.pid;": f"pid {self.home}/nginx.pid;",
            "/var/log/nginx/": f"{self.home}/",
            "/var/www/acme": f"{self.home}/acme",
            "/etc/ssl/llm-gateway/fullchain.pem": str(certificate),
            "/etc/ssl/llm-gateway/privkey.pem": str(certificate),
            "gateway.example.com": HOST,
            "listen 443 ": f"listen 127.0.0.1:{port} ",
            "listen 80 ": f"listen 127.0.0.1:{plain} ",
            # There need be no IPv6 where the tests run.
            "listen [::]:": "# listen [::]:",
            "server 127.0.0.1:8080;": f"server {upstream};",
            # Where the package has them a packaged nginx may run at the same time.
            "http {\n": f"http {{\n    {self._temporary()}\n",
        }
        text = PUBLISHED.read_text()
        for old, new in {**local, **(changes or {})}.items():
            assert old in text, f"{PUBLISHED.name} has no {old!r}"
            text = text.replace(old, new)
        self.file.write_text(text)
        command = [self.program, "-c", str(self.file), "-g", "daemon off;"]
        self.process = Process(name, command, directory)

    def _temporary(self) -> str:
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        return " ".join(f"{kind}_temp_path {self.home}/temporary/{kind};" for kind in kinds)

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            NotReady: it does not in time, or has ended.
        """
        (self.home / "temporary").mkdir(exist_ok=True)
        self.process.start()
        self.process.wait_ready(self._answers, 20.0)

    def forbid_files(self) -> None:
        """Take its temporary directories away: what it would keep there fails from now on."""
        shutil.rmtree(self.home / "temporary")

    def dump(self) -> str:
        """What `nginx -T` says: whether it accepts the file, and the file."""
        command = [self.program, "-T", "-c", str(self.file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stderr + done.stdout

    def reload(self) -> None:
        """As `systemctl reload nginx`."""
        command = [self.program, "-c", str(self.file), "-s", "reload"]
        subprocess.run(command, check=True, timeout=30)

    def stop(self) -> None:
        """End it, streams included."""
        self.process.stop()

    def workers(self) -> set[int]:
        """The pids of its workers, of old ones that serve what they have too."""
        pid = self.process.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def logged(self) -> list[dict[str, Any]]:
        """Its access log."""
        lines = (self.home / "llm-gateway.log").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def _answers(self) -> bool:
        try:
            return get(f"{self.plain}/").status == 308
        except OSError:
            return False


def _nginx() -> str:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Unavailable("there is no nginx on PATH (Debian: apt-get install nginx-light)")
    return program


def _user() -> str:
    # Workers of a root's nginx are nobody else, who could not read a directory of root's.
    return f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
