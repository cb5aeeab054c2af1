"""An emulator of SQS that checks who asks (moto)."""

from __future__ import annotations

import importlib
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

from tests.integration.cache import Unavailable
from tests.integration.processes import Process, free_port

REGION = "us-east-1"
_SETUP_ACTIONS = 3


class Queues:
    """moto's server, with one user of its own, whose key it makes.

    Attributes:
        access_key, secret_key: the key, once it has started.

    Args:
        logs: for its log.
    """

    def __init__(self, logs: Path) -> None:
        beside = Path(sys.executable).with_name("moto_server")
        program = str(beside) if beside.exists() else shutil.which("moto_server")
        if program is None:
            raise Unavailable("there is no moto_server (pip install '.[integration]')")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.access_key = self.secret_key = ""
        # So many requests are let through unchecked: those that make the user and its key.
        unchecked = {"INITIAL_NO_AUTH_ACTION_COUNT": str(_SETUP_ACTIONS)}
        command = [program, "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = Process("moto", command, logs, environment=unchecked)

    def start(self) -> None:
        """Start it, and make the user."""
        self.process.start()
        self.process.wait_ready(self._listens, 60.0)
        iam = self._client("iam", "setup", "setup")
        iam.create_user(UserName="gateway")
        policy = (
            '{"Version": "2012-10-17", "Statement": '
            '[{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}]}'
        )
        iam.put_user_policy(UserName="gateway", PolicyName="queues", PolicyDocument=policy)
        key = iam.create_access_key(UserName="gateway")["AccessKey"]
        self.access_key, self.secret_key = key["AccessKeyId"], key["SecretAccessKey"]

    def client(self) -> Any:
        """AWS's own client, with the key."""
        return self._client("sqs", self.access_key, self.secret_key)

    def _client(self, service: str, access_key: str, secret_key: str) -> Any:
        return importlib.import_module("boto3").client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
        )

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
