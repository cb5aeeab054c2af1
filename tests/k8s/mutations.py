"""Every way to take a line of a NetworkPolicy away, or to have it let more through."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tests.k8s.network import LAST_PORT
from tests.k8s.objects import Tree

Change = tuple[str, Callable[[Any], object]]
"""What is changed, and how; the change is given the object that stands at the place."""

_EVERYBODY: Tree = {"namespaceSelector": {}}


def mutations(policies: list[Tree]) -> Iterator[tuple[str, list[Tree]]]:
    """Each way, and the policies as they then are; what is given stays as it is."""
    for index, policy in enumerate(policies):
        name = policy["metadata"]["name"]
        yield f"without {name}", policies[:index] + policies[index + 1 :]
        for said, change in _of_policy(policy["spec"]):
            changed = copy.deepcopy(policy)
            change(changed["spec"])
            yield f"{name}: {said}", [*policies[:index], changed, *policies[index + 1 :]]


def _of_policy(spec: Tree) -> Iterator[Change]:
    for said, change in _of_selector(spec["podSelector"]):
        yield f"podSelector: {said}", _at(("podSelector",), change)
    for way in spec["policyTypes"]:
        yield f"not for {way}", _at(("policyTypes",), _without(way))
        rules = way.lower()
        yield f"{rules} of everybody", _put(rules, [{}])
        for index, rule in enumerate(spec.get(rules, [])):
            place = f"{rules}[{index}]"
            yield f"without {place}", _at((rules,), _without(rule))
            for said, change in _of_rule(rule, "from" if rules == "ingress" else "to"):
                yield f"{place}: {said}", _at((rules, index), change)


def _of_rule(rule: Tree, peers: str) -> Iterator[Change]:
    yield "every port", lambda tree: tree.pop("ports")
    yield "all the world", lambda tree: tree.pop(peers)
    for index, one in enumerate(rule["ports"]):
        at = ("ports", index)
        yield f"without {one}", _at(("ports",), _without(one))
        yield f"{one}, and all above", _at(at, lambda tree: tree.update(endPort=LAST_PORT))
        yield f"another protocol than {one}", _at(at, _another_protocol)
        yield f"every port, not {one}", _at(at, lambda tree: tree.pop("port"))
    for index, peer in enumerate(rule[peers]):
        yield f"without {peer}", _at((peers,), _without(peer))
        yield f"everybody, not {peer}", _at((peers,), _instead(index))
        for key, selector in peer.items():
            if key == "ipBlock":
                for cidr in ("0.0.0.0/0", "::/0"):
                    yield cidr, _at((peers, index, key), _put("cidr", cidr))
                continue
            for said, change in _of_selector(selector):
                yield f"{key}: {said}", _at((peers, index, key), change)
            if len(peer) > 1:
                yield f"without {key}", _at((peers, index), _pop(key))


def _of_selector(selector: Tree) -> Iterator[Change]:
    yield "everybody", lambda tree: tree.clear()
    for key in selector.get("matchLabels", {}):
        yield f"another {key}", _at(("matchLabels",), _put(key, "nobody"))
        yield f"any {key}", _any_value(key)
    for index, expression in enumerate(selector.get("matchExpressions", [])):
        for value in expression["values"]:
            yield f"not {value}", _at(("matchExpressions", index, "values"), _without(value))
        yield f"any {expression['key']}", _any_value(expression["key"])


def _at(path: tuple[str | int, ...], change: Callable[[Any], object]) -> Callable[[Any], object]:
    def changed(tree: Any) -> None:
        for key in path:
            tree = tree[key]
        change(tree)

    return changed


def _without(item: object) -> Callable[[Any], object]:
    return lambda items: items.remove(item)


def _pop(key: str) -> Callable[[Any], object]:
    return lambda tree: tree.pop(key)


def _put(key: str, value: object) -> Callable[[Any], object]:
    return lambda tree: tree.update({key: value})


def _instead(index: int) -> Callable[[Any], object]:
    return lambda peers: peers.__setitem__(index, _EVERYBODY)


def _any_value(key: str) -> Callable[[Any], object]:
    def change(selector: Tree) -> None:
        selector.clear()
        selector["matchExpressions"] = [{"key": key, "operator": "Exists"}]

    return change


def _another_protocol(port: Tree) -> None:
    port["protocol"] = "UDP" if port["protocol"] == "TCP" else "TCP"
