"""nginx in front of the gateway, as its users have it."""

from __future__ import annotations

import getpass
import os
import shutil
from pathlib import Path

from tests.integration.cache import Unavailable
from tests.integration.processes import Process, free_port
from tests.integration.wire import get

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
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        if program is None:
            raise Unavailable("there is no nginx on PATH (Debian: apt-get install nginx-light)")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        home = directory / "nginx"
        home.mkdir(parents=True, exist_ok=True)
        # Workers of a root's nginx are nobody else, who could not read a directory of root's.
        user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
        text = _CONFIG.format(
            directory=home, port=port, upstream=upstream, user=user, impatient=IMPATIENT_SECONDS
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
