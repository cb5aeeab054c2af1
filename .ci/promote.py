"""Makes an image the one that runs: `deploy` gets the tested commit with the image's digest in it.

    python .ci/promote.py --overlay k8s/overlays/NAME --image NAME --digest sha256:…

The branch `deploy` is what Argo CD follows. Each commit there has two parents, what was deployed
before and the commit of main that has passed, and differs from the latter in one file alone, the
overlay's kustomization. So manifests and image go together, history is never rewritten, and to go
back is `git revert -m 1`. A commit that is older than what is deployed is left alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PLACEHOLDER = "ghcr.io/example/llm-gateway"
BRANCH = "deploy"
# A registry with a path; of what goes into a file that others read, nothing is taken on trust.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+")
_ENTRY = re.compile(
    rf"^(?P<indent> *)- name: {re.escape(PLACEHOLDER)}\n(?:(?P=indent)  \w+:.*\n)*", re.MULTILINE
)
# The password comes by the environment, so that no command line and no file bears it. Where there
# is none git asks whom it would ask else, and is not refused for an empty one.
_HELPER = (
    '!f() { [ -z "$PUSH_TOKEN" ] || '
    '{ echo "username=${PUSH_USER:-token}"; echo "password=$PUSH_TOKEN"; }; }; f'
)


def promoted(text: str, image: str, commit: str, digest: str) -> str:
    """The text of an overlay's kustomization with another image.

    Raises:
        ValueError: it does not say once which image stands for the base's, or image or digest is
            none.
    """
    if not _IMAGE.fullmatch(image):
        raise ValueError(f"{image!r} is no name of an image in a registry, without a tag")
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"{digest!r} is no digest")
    if len(_ENTRY.findall(text)) != 1:
        raise ValueError(f"images: has to have exactly one entry with name: {PLACEHOLDER}")

    def entry(found: re.Match[str]) -> str:
        # Quoted: a hash of digits alone, or with one `e` among them, is a number to YAML.
        names = (f"newName: {image}", f'newTag: "{commit}"', f"digest: {digest}")
        lines = [f"- name: {PLACEHOLDER}", *(f"  {one}" for one in names)]
        return "".join(f"{found['indent']}{line}\n" for line in lines)

    return _ENTRY.sub(entry, text)


def git(*arguments: str, stdin: str | None = None, **environment: str) -> str:
    """Run git; returns what it prints.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    helper = {"GIT_CONFIG_KEY_0": "credential.helper", "GIT_CONFIG_VALUE_0": _HELPER}
    done = subprocess.run(
        ["git", *arguments],
        input=stdin,
        env={**os.environ, "GIT_CONFIG_COUNT": "1", **helper, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def deployed() -> str | None:
    """The tip of the branch; None: there is none yet."""
    if not git("ls-remote", "origin", f"refs/heads/{BRANCH}"):
        return None
    git("fetch", "--quiet", "origin", f"+refs/heads/{BRANCH}:refs/remotes/origin/{BRANCH}")
    return git("rev-parse", f"refs/remotes/origin/{BRANCH}")


def is_ancestor(older: str, newer: str) -> bool:
    """Whether a commit is among another's ancestors, or is it."""
    return subprocess.run(["git", "merge-base", "--is-ancestor", older, newer]).returncode == 0


def commit_of(path: Path, text: str, tested: str, before: str | None, message: str) -> str:
    """A commit of the tested one's files, but for one; the checkout stays as it is."""
    with tempfile.TemporaryDirectory() as directory:
        index = {"GIT_INDEX_FILE": str(Path(directory) / "index")}
        git("read-tree", tested, **index)
        blob = git("hash-object", "-w", "--stdin", stdin=text)
        git("update-index", "--cacheinfo", f"100644,{blob},{path.as_posix()}", **index)
        tree = git("write-tree", **index)
    who = {}
    for role in ("AUTHOR", "COMMITTER"):
        who[f"GIT_{role}_NAME"], who[f"GIT_{role}_EMAIL"] = "pipeline", "pipeline@localhost"
    parents = [before, tested] if before is not None else [tested]
    options = [word for parent in parents for word in ("-p", parent)]
    return git("commit-tree", tree, *options, "-m", message, **who)


def main() -> str:
    """Promote what the command line says; returns what became of it."""
    parser = argparse.ArgumentParser(description="Make an image the one that runs.")
    for name in ("overlay", "image", "digest"):
        parser.add_argument(f"--{name}", required=True)
    chosen = parser.parse_args()
    tested = git("rev-parse", "HEAD")
    path = Path(chosen.overlay) / "kustomization.yaml"
    if not chosen.overlay or not git("ls-tree", "--full-tree", tested, "--", path.as_posix()):
        raise ValueError(f"{tested} has no {path.as_posix()}: is the overlay's variable set?")
    now = git("show", f"{tested}:{path.as_posix()}") + "\n"
    text = promoted(now, chosen.image, tested, chosen.digest)
    before = deployed()
    if before is not None and is_ancestor(tested, before):
        return f"{tested} is deployed already, or something newer is"
    message = f"Deploy {tested}\n\n{chosen.image}@{chosen.digest}"
    made = commit_of(path, text, tested, before, message)
    git("push", "--quiet", "origin", f"{made}:refs/heads/{BRANCH}")
    return f"{BRANCH} is {made}: {chosen.image}@{chosen.digest}"


if __name__ == "__main__":
    try:
        print(main())
    except (ValueError, subprocess.CalledProcessError) as fault:
        sys.exit(f"not promoted: {fault}")
