"""The pipeline's file: what it may do, whose code it runs, and that what it names is there."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import sys
import types
from collections.abc import Iterator
from configparser import ConfigParser
from typing import Any
from unittest import mock

import kubernetes_validate  # type: ignore[import-untyped]
import yaml

from tests.support import TestCase
from tests.test_docs import TOP, read

WORKFLOW = TOP / ".github" / "workflows" / "ci.yml"
DIGEST = "sha256:" + "5" * 64
COMMIT = "c" * 40
# What somebody who opens a pull request, or names a branch, decides. Secrets may be untrusted text
# as well, and are visible in a process list.
UNTRUSTED = re.compile(r"\$\{\{")
# Whose code runs here: known by its name, fixed by its commit.
OWNERS = {"actions"}


@functools.cache
def workflow() -> dict[str, Any]:
    """The file, which no test changes."""
    tree: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    # YAML 1.1 takes the key `on` for true.
    tree["on"] = tree.pop(True)  # type: ignore[call-overload]
    return tree


def jobs() -> dict[str, dict[str, Any]]:
    """Its jobs, by name."""
    found: dict[str, dict[str, Any]] = workflow()["jobs"]
    return found


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every step, with its job's name."""
    for name, job in jobs().items():
        for step in job["steps"]:
            yield name, step


def program(name: str) -> types.ModuleType:
    """A program of .ci, imported; others beside it are found as where it is run."""
    spec = importlib.util.spec_from_file_location(name, TOP / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(sys, "path", [str(TOP / ".ci"), *sys.path]):
        spec.loader.exec_module(module)
    return module


class RightsTests(TestCase):
    """What it may do, and who decides what it does."""

    def test_one_file_for_both(self) -> None:
        """Forgejo reads .github/workflows only where there is no .forgejo/workflows."""
        self.assertFalse((TOP / ".forgejo" / "workflows").exists())
        self.assertFalse((TOP / ".gitea" / "workflows").exists())
        self.assertEqual([one.name for one in WORKFLOW.parent.iterdir()], ["ci.yml"])

    def test_events(self) -> None:
        """Code of strangers has no rights but to read: no pull_request_target and its like."""
        self.assertEqual(set(workflow()["on"]), {"push", "pull_request"})
        self.assertEqual(workflow()["on"]["push"], {"branches": ["main"]})

    def test_permissions(self) -> None:
        """Nothing is granted but what a job names; two may write, each one thing, on main alone."""
        self.assertEqual(workflow()["permissions"], {})
        granted = {name: job["permissions"] for name, job in jobs().items()}
        writes = {
            name: {what for what, how in rights.items() if how == "write"}
            for name, rights in granted.items()
        }
        self.assertEqual(writes.pop("image"), {"packages"})
        self.assertEqual(writes.pop("promote"), {"contents"})
        self.assertEqual(set().union(*writes.values()), set())

    def test_secrets(self) -> None:
        """Secrets reach single steps that need them, and no job that a pull request starts."""
        behind_main = self._behind("image")
        for name, job in jobs().items():
            self.assertNotIn("secrets.", yaml.safe_dump({**job, "steps": None}), name)
        for name, step in steps():
            text = yaml.safe_dump(step)
            if re.search(r"secrets\.|github\.token|GITHUB_TOKEN", text):
                self.assertIn(name, behind_main)
                self.assertNotRegex(yaml.safe_dump({**step, "env": None}), r"secrets\.|token")
        self.assertIn("github.event_name == 'push'", jobs()["image"]["if"])
        # By the environment alone, so that the bill's scanner, which runs first, has no login.
        script = (TOP / ".ci" / "image").read_text().partition("\npush() {")[2]
        self.assertRegex(script, r"(?s)unset REGISTRY_TOKEN\n    bill\n.*?\n    login\n")
        self.assertNotIn("always()", WORKFLOW.read_text())

    def _behind(self, first: str) -> set[str]:
        """A job, and those that need it."""
        found = {first}
        for _ in jobs():
            found |= {name for name, job in jobs().items() if found & set(job.get("needs", []))}
        return found

    def test_no_interpolation(self) -> None:
        """No command has text pasted into it; what varies comes by the environment, quoted."""
        for name, step in steps():
            command = step.get("run", "")
            self.assertNotRegex(command, UNTRUSTED, name)
            for variable in re.findall(r"\S*\$\w+\S*", command):
                self.assertRegex(command, rf'"[^"]*{re.escape(variable.strip(chr(34)))}[^"]*"')

    def test_credentials_are_not_kept(self) -> None:
        """What is checked out holds no token that later steps could read."""
        checkouts = [step for _, step in steps() if "actions/checkout" in step.get("uses", "")]
        self.assertEqual(len(checkouts), len(jobs()))
        for step in checkouts:
            self.assertIs(step["with"]["persist-credentials"], False)

    def test_bounds(self) -> None:
        """Every job has a time, and no two runs deploy at once."""
        for name, job in jobs().items():
            self.assertLessEqual(job["timeout-minutes"], 60, name)
        for name in ("cluster", "promote"):
            self.assertFalse(jobs()[name]["concurrency"]["cancel-in-progress"])
        self.assertIn("pull_request", workflow()["concurrency"]["cancel-in-progress"])


class SupplyTests(TestCase):
    """Whose code it runs."""

    def test_actions(self) -> None:
        """Actions are fixed by commit, with the version beside it, and the same everywhere."""
        used: dict[str, set[str]] = {}
        pinned = re.compile(r"uses: ([\w-]+)/([\w-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$")
        for line in WORKFLOW.read_text().splitlines():
            if "uses:" in line:
                found = pinned.search(line)
                assert found is not None, line
                self.assertIn(found[1], OWNERS)
                used.setdefault(f"{found[1]}/{found[2]}", set()).add(f"{found[3]} {found[4]}")
        self.assertGreater(len(used), 1)
        for name, versions in used.items():
            self.assertEqual(len(versions), 1, name)

    def test_programs(self) -> None:
        """What is installed from PyPI is fixed by hash, all of what is asked for is there."""
        for name, step in steps():
            if "pip install" in step.get("run", ""):
                self.assertIn("--require-hashes -r .ci/requirements.txt", step["run"], name)
        locked = (TOP / ".ci" / "requirements.txt").read_text()
        pins = {re.sub(r"[-_.]+", "-", name) for name in re.findall(r"(?m)^([\w.-]+)==", locked)}
        blocks = re.split(r"(?m)^(?=[\w.-]+==)", locked)[1:]
        self.assertEqual(len(blocks), len(pins))
        for block in blocks:
            self.assertIn("--hash=sha256:", block)
        wanted = (TOP / ".ci" / "requirements.in").read_text()
        asked = set(re.findall(r"(?m)^([\w-]+)", re.sub(r"(?m)^#.*", "", wanted)))
        self.assertLessEqual({name.lower() for name in asked}, pins)


class ContentsTests(TestCase):
    """What it names is there, and in order."""

    def test_commands(self) -> None:
        """Every program of the repository that is run is there, and may be run."""
        seen = set()
        for _, step in steps():
            for word in shlex.split(step.get("run", ""), comments=True):
                if word.startswith(".ci/"):
                    path = TOP / word
                    self.assertTrue(path.is_file(), word)
                    seen.add(word)
                    if path.suffix == "":
                        self.assertTrue(path.stat().st_mode & 0o111, word)
        self.assertGreaterEqual(
            seen, {".ci/image", ".ci/packages", ".ci/cluster.py", ".ci/promote.py"}
        )

    def test_environments(self) -> None:
        """Everything that tox has for CI is run, on the Python it is for."""
        tox = ConfigParser()
        tox.read(TOP / "tox.ini")
        listed = {name.strip() for name in tox["tox"]["env_list"].split(",")}
        matrix = jobs()["checks"]["strategy"]["matrix"]["include"]
        self.assertEqual({one["tox"] for one in matrix}, listed)
        for one in matrix:
            if found := re.fullmatch(r"py(\d)(\d+)", one["tox"]):
                self.assertEqual(one["python"], f"{found[1]}.{found[2]}")
        self.assertIn("testenv:integration", tox)

    def test_order(self) -> None:
        """Nothing is pushed before all tests have passed, or promoted before the cluster's have."""
        self.assertEqual(set(jobs()["image"]["needs"]), {"checks", "integration"})
        self.assertEqual(jobs()["cluster"]["needs"], ["image"])
        self.assertEqual(set(jobs()["promote"]["needs"]), {"image", "cluster"})

    def test_variables(self) -> None:
        """Every variable of the repository is in docs/pipeline.md, and reaches what it is for."""
        text = WORKFLOW.read_text()
        named = set(re.findall(r"\bvars\.(\w+)", text))
        page = read("docs/pipeline.md")
        table = page.partition("\n## Set up\n")[2].partition("\n| secret |")[0]
        self.assertEqual(set(re.findall(r"(?m)^\| `(\w+)` \|", table)), named)
        for name in ("build", "image"):
            self.assertEqual(jobs()[name]["env"]["BASE"], "${{ vars.BASE }}")
        (tried,) = (step for name, step in steps() if ".ci/cluster.py" in step.get("run", ""))
        self.assertIn('"--options=$CHECK_OPTIONS"', tried["run"])
        self.assertEqual(jobs()["cluster"]["env"]["CHECK_OPTIONS"], "${{ vars.CHECK_OPTIONS }}")

    def test_tried_and_promoted(self) -> None:
        """What is promoted is the overlay that was tried, and an image that has run before."""
        for name in ("cluster", "promote"):
            self.assertEqual(jobs()[name]["env"]["OVERLAY"], "${{ vars.OVERLAY }}")
        for name in (".ci/cluster.py", ".ci/promote.py"):
            (step,) = (one for _, one in steps() if name in one.get("run", ""))
            self.assertIn('--overlay "k8s/overlays/$OVERLAY"', step["run"])
        commands = [step.get("run") for step in jobs()["integration"]["steps"]]
        self.assertIn(".ci/image test", commands)

    def test_role(self) -> None:
        """The role that docs/pipeline.md gives the pipeline has what .ci/cluster.py does."""
        (block,) = re.findall(r"```yaml\n(.*?)```", read("docs/pipeline.md"), re.DOTALL)
        role = yaml.safe_load(block)
        kubernetes_validate.validate(role, "1.30", strict=True)
        may = {
            (resource, verb)
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        jobs_own = {("jobs", verb) for verb in ("create", "get", "delete")}
        # `logs` gets the pod first, whose name is looked up in the list of the Job's.
        seen = {("pods", "list"), ("pods", "get"), ("pods/log", "get"), ("events", "list")}
        self.assertLessEqual({*jobs_own, ("configmaps", "create"), *seen}, may)
        self.assertFalse({"secrets", "deployments"} & {resource for resource, _ in may})
        self.assertFalse({"*", "update", "patch"} & {verb for _, verb in may})

    def test_account(self) -> None:
        """It is bound to an account whose token is where the kubeconfig's script looks for it."""
        page = read("docs/pipeline.md")
        (role,) = (yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
        name, namespace = role["metadata"]["name"], role["metadata"]["namespace"]
        where = f"kubectl -n {namespace}"
        self.assertIn(f"{where} create serviceaccount {name}\n", page)
        bound = (
            f"{where} create rolebinding {name} --role={name} --serviceaccount={namespace}:{name}\n"
        )
        self.assertIn(bound, page)
        (text,) = re.findall(rf"{where} apply -f - <<END\n(.*?)\nEND\n", page, re.DOTALL)
        secret = yaml.safe_load(text)
        kubernetes_validate.validate(secret, "1.30", strict=True)
        self.assertEqual(secret["type"], "kubernetes.io/service-account-token")
        annotations = {"kubernetes.io/service-account.name": name}
        self.assertEqual(secret["metadata"], {"name": name, "annotations": annotations})
        self.assertIn(f"$({where} get secret {name} -o jsonpath='{{.data.token}}'", page)

    def test_images_are_named_by_commit(self) -> None:
        """No image has a tag that moves."""
        for path in (WORKFLOW, *(TOP / ".ci").iterdir()):
            if path.is_file() and path.suffix != ".txt":
                self.assertNotRegex(path.read_text(), r":latest\b", path.name)
        self.assertIn("image=$name:$commit\n", (TOP / ".ci" / "image").read_text())


class PromotionTests(TestCase):
    """.ci/promote.py, of which git's part is in the integration suite."""

    def test_overlays(self) -> None:
        """The image of every overlay can be replaced; nothing else in its file changes."""
        promote = program("promote")
        overlays = sorted((TOP / "k8s" / "overlays").glob("*/kustomization.yaml"))
        self.assertTrue(overlays)
        for path in overlays:
            before = path.read_text()
            after = promote.promoted(before, "registry.example/gateway", COMMIT, DIGEST)
            expected = yaml.safe_load(before)
            (entry,) = expected["images"]
            entry.update(newName="registry.example/gateway", newTag=COMMIT, digest=DIGEST)
            self.assertEqual(yaml.safe_load(after), expected)
            comments = [line for line in before.splitlines() if "#" in line]
            self.assertLessEqual(set(comments), set(after.splitlines()))
            again = promote.promoted(after, "registry.example/gateway", COMMIT, DIGEST)
            self.assertEqual(again, after)

    def test_refusals(self) -> None:
        """What is no digest or no image, and a file without the image or with two, are refused."""
        promote = program("promote")
        entry = f"images:\n  - name: {promote.PLACEHOLDER}\n    newTag: a\n"
        name = "registry.example:5000/some/gateway"
        promote.promoted(entry, name, COMMIT, DIGEST)
        for text, image, digest in (
            (entry, name, "sha256:5"),
            (entry, name, ""),
            (entry, name, DIGEST + "\n"),
            (entry, "", DIGEST),
            (entry, "gateway", DIGEST),
            (entry, f"{name}:tag", DIGEST),
            (entry, f"{name}\n    newTag: b", DIGEST),
            (entry, f"{name} # b", DIGEST),
            ("images: []\n", name, DIGEST),
            (entry + entry, name, DIGEST),
        ):
            self.assertRaises(ValueError, promote.promoted, text, image, COMMIT, digest)

    def test_any_hash_is_a_text(self) -> None:
        """Also one that YAML would take for a number."""
        promote = program("promote")
        entry = f"images:\n  - name: {promote.PLACEHOLDER}\n    newTag: a\n"
        for commit in ("1" * 40, "1" * 20 + "e" + "2" * 19, "0" * 40):
            after = promote.promoted(entry, "registry.example/gateway", commit, DIGEST)
            self.assertEqual(yaml.safe_load(after)["images"][0]["newTag"], commit)
