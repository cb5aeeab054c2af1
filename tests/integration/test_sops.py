"""The Secrets of an overlay, by real sops and age: encrypted, read, changed, and rotated."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.cache import Unavailable
from tests.integration.case import unavailable
from tests.integration.manifests import Keeper, Refused, built, documents, program
from tests.k8s import schemas
from tests.k8s.objects import K8S, OVERLAYS, TOP

HOMELAB = OVERLAYS / "homelab"
ENCRYPT = (
    *("encrypt", "--filename-override", "secrets.enc.yaml"),
    *("--output", "secrets.enc.yaml", "secrets.example.yaml"),
)

_PROGRAMS = {
    # A cluster that keeps what it is given, and operators that are there.
    "kubectl": """#!/bin/bash
words=$*
case $words in
*--from-file=key=*) key=${words#*--from-file=key=}; cp "${key%% *}" "$CLUSTER" ;;
*" -f -"*) cat >/dev/null ;;
esac
""",
    "helm": """#!/bin/bash
case "$*" in *"--values -"*) cat >/dev/null ;; esac
""",
    # What is done in an editor.
    "edit": """#!/bin/bash
sed -i 's/peer-token: .*/peer-token: edited-by-whoever-has-the-key/' "$1"
""",
    # All keys that there are go into .sops.yaml.
    "recipients": """#!/bin/bash
all=$(cat "$KEYS"/*.key "$CLUSTER"/*.key 2>/dev/null | sed -n 's/^# public key: //p')
age=$(sort -u <<<"$all" | paste -sd,)
sed -i -e '/^ *age1/d' -e "s/^    age: .*/    age: $age/" "$OVERLAY/.sops.yaml"
""",
}


class SecretTests(SynchronousTestCase):
    """`.sops.yaml` and what is encrypted by it."""

    def setUp(self) -> None:
        """Have a copy of the overlay's files for two keepers with keys of their own."""
        self.place = Path(self.mktemp()).resolve()
        self.place.mkdir(parents=True)
        try:
            self.cluster, self.safe, self.next = (
                Keeper(self.place / f"{name}.txt") for name in ("cluster", "safe", "next")
            )
        except Unavailable as why:
            raise unavailable(why) from None
        for name in (".sops.yaml", "secrets.example.yaml"):
            shutil.copy(HOMELAB / name, self.place)
        self._recipients(self.cluster, self.safe)
        (self.plain,) = documents(self.place / "secrets.example.yaml")

    def test_round_trip(self) -> None:
        """What the documented command encrypts either key decrypts, and no other."""
        encrypted = self._encrypt()
        for value in _leaves(self.plain["spec"]):
            if "change-me" in value:
                self.assertNotIn(value, encrypted)
        for keeper in (self.cluster, self.safe):
            self.assertEqual(self._decrypt(keeper), self.plain)
        self.assertCannotRead(self.next)

    def test_applied(self) -> None:
        """What kustomize makes of it still decrypts, its MAC and all, in another namespace."""
        self._encrypt()
        (self.place / "kustomization.yaml").write_text(
            "namespace: api\nlabels: [{pairs: {app.kubernetes.io/part-of: x}}]\n"
            "resources: [secrets.enc.yaml]\n",
            encoding="utf-8",
        )
        (applied,) = built(self.place).all
        self.assertEqual(list(schemas.refused(applied)), [])
        (self.place / "secrets.enc.yaml").write_text(yaml.safe_dump(applied), encoding="utf-8")
        got = self._decrypt(self.cluster)
        self.assertEqual(got["spec"], self.plain["spec"])
        self.assertEqual(got["metadata"]["namespace"], "api")

    def test_changed(self) -> None:
        """A value that somebody has put in the place of another is noticed."""
        encrypted = self._encrypt()
        (first,) = re.findall(r" s3-access-key: (\S+)", encrypted)
        (second,) = re.findall(r" sqs-access-key: (\S+)", encrypted)
        swapped = re.sub(
            f"{re.escape(first)}|{re.escape(second)}",
            lambda found: second if found[0] == first else first,
            encrypted,
        )
        self.assertNotEqual(swapped, encrypted)
        (self.place / "secrets.enc.yaml").write_text(swapped, encoding="utf-8")
        fault = self.assertRaises(Refused, self._decrypt, self.cluster)
        self.assertIn("message authentication failed", str(fault))

    def test_rotation(self) -> None:
        """A new key is taken in, the old one taken out, and what is changed then it cannot read."""
        self._encrypt()
        self._recipients(self.cluster, self.safe, self.next)
        self.safe.sops("updatekeys", "--yes", "secrets.enc.yaml", cwd=self.place)
        self.assertEqual(self._decrypt(self.next), self.plain)
        self._recipients(self.next, self.safe)
        self.safe.sops("updatekeys", "--yes", "secrets.enc.yaml", cwd=self.place)
        self.safe.sops("rotate", "--in-place", "secrets.enc.yaml", cwd=self.place)
        self.assertCannotRead(self.cluster)
        path = '["spec"]["secretTemplates"][0]["stringData"]["s3-secret-key"]'
        self.next.sops("set", "secrets.enc.yaml", path, '"another"', cwd=self.place)
        for keeper in (self.next, self.safe):
            changed = self._decrypt(keeper)["spec"]["secretTemplates"][0]["stringData"]
            self.assertEqual(changed["s3-secret-key"], "another")

    def test_nothing_is_lost(self) -> None:
        """Where it can not encrypt, the file that was there stays as it was."""
        encrypted = self._encrypt()
        rule = self.place / ".sops.yaml"
        rule.write_text("creation_rules: [{path_regex: x, age: age1nobody}]\n", encoding="utf-8")
        self.assertRaises(Refused, self.cluster.sops, *ENCRYPT, cwd=self.place)
        there = (self.place / "secrets.enc.yaml").read_text(encoding="utf-8")
        self.assertEqual(there, encrypted)

    def test_committed(self) -> None:
        """The overlay's own has its template's keys, all encrypted, for the two of the rule."""
        (encrypted,) = documents(HOMELAB / "secrets.enc.yaml")
        self.assertEqual(list(schemas.refused(encrypted)), [])
        (template,) = documents(HOMELAB / "secrets.example.yaml")
        self.assertEqual(_shape(encrypted["spec"]), _shape(template["spec"]))
        (rule,) = yaml.safe_load((HOMELAB / ".sops.yaml").read_text("utf-8"))["creation_rules"]
        recipients = [one["recipient"] for one in encrypted["sops"]["age"]]
        self.assertEqual(recipients, re.split(r",\s*", rule["age"]))
        for path in K8S.rglob("*.*"):
            if path.suffix in (".yaml", ".md", ".txt", ".key"):
                self.assertNotIn("AGE-SECRET-KEY-1", path.read_text(encoding="utf-8"), path)

    def assertCannotRead(self, keeper: Keeper) -> None:
        """It is encrypted for others, and that is why sops fails."""
        fault = self.assertRaises(Refused, self._decrypt, keeper)
        self.assertIn("identity did not match any of the recipients", str(fault))

    def _recipients(self, *keepers: Keeper) -> None:
        path = self.place / ".sops.yaml"
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        tree["creation_rules"][0]["age"] = ",".join(one.recipient for one in keepers)
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")

    def _encrypt(self) -> str:
        self.cluster.sops(*ENCRYPT, cwd=self.place)
        return (self.place / "secrets.enc.yaml").read_text(encoding="utf-8")

    def _decrypt(self, keeper: Keeper) -> Any:
        return yaml.safe_load(keeper.sops("decrypt", "secrets.enc.yaml", cwd=self.place))


class PageTests(SynchronousTestCase):
    """The commands of docs/kubernetes.md, one after another, as they stand there."""

    def setUp(self) -> None:
        """Have a checkout's overlay, and a kubectl and a helm of our own."""
        place = Path(self.mktemp()).resolve()
        self.overlay = place / "checkout" / "k8s" / "overlays" / "homelab"
        self.overlay.mkdir(parents=True)
        for name in (".sops.yaml", "secrets.example.yaml", "secrets.enc.yaml"):
            shutil.copy(HOMELAB / name, self.overlay)
        self.keys, self.cluster, programs = (
            place / name for name in ("gateway-keys", "cluster", "programs")
        )
        for directory in (self.cluster, programs):
            directory.mkdir()
        for name, text in _PROGRAMS.items():
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(0o755)
        try:
            needed = [Path(program(name)).parent for name in ("sops", "age-keygen")]
        except Unavailable as why:
            raise unavailable(why) from None
        path = os.pathsep.join(map(str, (programs, *needed, Path(sys.executable).parent)))
        self.environ = {
            "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(place),
            "EDITOR": "edit",
            "SOPS_DISABLE_VERSION_CHECK": "true",
            "CLUSTER": str(self.cluster),
            "OVERLAY": str(self.overlay),
        }

    def test_as_they_stand(self) -> None:
        """From no key to a rotated one: all is read by those who are to, and by nobody else."""
        page = (TOP / "docs" / "kubernetes.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        self.assertEqual(len(blocks), 4)
        lines = ["set -eu -o pipefail"]
        for line in "".join(blocks).splitlines():
            lines.append(line)
            # What people do in .sops.yaml.
            if "take the old one out" in line:
                lines.append('mv "$CLUSTER/cluster.key" "$CLUSTER/former"')
            if "age-keygen -o" in line or "take the old one out" in line:
                lines.append("recipients")
        value = 'with "quotes" and \\'
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            cwd=self.overlay.parents[2],
            env=self.environ,
            # Passwords are asked for at a terminal, and where there is none at the standard input.
            start_new_session=True,
            input=f"{value}\n",
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(value, done.stdout)
        for key in (self.keys / "safe.key", self.cluster / "new.key"):
            values = self._decrypt(key)["spec"]["secretTemplates"][0]["stringData"]
            self.assertEqual(values["s3-secret-key"], value)
            self.assertEqual(values["peer-token"], "edited-by-whoever-has-the-key")
        self.assertRaises(subprocess.CalledProcessError, self._decrypt, self.cluster / "former")
        # What the cluster has got is nowhere else.
        self.assertEqual([one.name for one in self.keys.iterdir()], ["safe.key"])
        self.assertEqual(stat.S_IMODE(self.keys.stat().st_mode), 0o700)

    def _decrypt(self, key: Path) -> Any:
        done = subprocess.run(
            ["sops", "decrypt", "secrets.enc.yaml"],
            cwd=self.overlay,
            env={**self.environ, "SOPS_AGE_KEY_FILE": str(key)},
            capture_output=True,
            check=True,
            timeout=60,
        )
        return yaml.safe_load(done.stdout)


def _leaves(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [leaf for value in node.values() for leaf in _leaves(value)]
    if isinstance(node, list):
        return [leaf for value in node for leaf in _leaves(value)]
    return [str(node)]


def _shape(node: Any) -> Any:
    """A tree without the values of `stringData`."""
    if isinstance(node, dict):
        return {
            key: sorted(value) if key == "stringData" else _shape(value)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_shape(value) for value in node]
    return node
