"""Why requests wait, in words: a sentence for each set of engines, and what else is amiss.

All of it is read off the facts of `/status.json`, so what the page says can be checked there.

    state      when
    -------    ----------------------------------------------------------------------------------
    shut       nothing is let in: connections are refused, or gauges are stale and `closed`
    failing    the engine answers, and its latest answers were all errors
    silent     nothing comes from the engine for much longer than what is in it should take
    stale      gauges are stale or were never read; the gate goes by what it knows besides
    waiting    somebody is parked
    serving    something is in the engine, nobody waits
    idle       nothing is
    no gate    requests go straight to the engine
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.view import Hold, Sight
from twisted_gateway.web.status.words import about, count, duration, name, percent

Facts = Mapping[str, Any]

LEAST_FAULTS = 3
"""So many bad answers in a row speak of the engine, and not of a request."""
LEAST_SILENCE_SECONDS = 60.0
SILENCE_RATIO = 2.0

_HINTS = {
    401: " (is its apiKey right?)",
    403: " (is its apiKey right?)",
    404: " (does it know the model by upstreamModel, and the path?)",
    405: " (is the path right?)",
    501: " (does it serve this kind of request at all?)",
}
_BLIND = frozenset(one.value for one in (Sight.CLOSED, Sight.HELD, Sight.LEDGER, Sight.NO_GATE))
_FAILURES = (
    Outcome.UPSTREAM_ERROR,
    Outcome.UPSTREAM_TIMEOUT,
    Outcome.UPSTREAM_INCOMPLETE,
    Outcome.INTERNAL_ERROR,
)


class State(Enum):
    """How a set of engines fares, the worst first."""

    SHUT = "shut"
    FAILING = "failing"
    SILENT = "silent"
    STALE = "stale"
    WAITING = "waiting"
    SERVING = "serving"
    IDLE = "idle"
    NO_GATE = "no gate"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(State).index(self)


def state(facts: Facts) -> State:
    """How the engines of these facts fare (see the module's table)."""
    engines = facts["engines"]
    gated = facts["gated"]
    for so, which in (
        (gated and all(_shut(one) for one in engines), State.SHUT),
        (all(_fails(one) for one in engines), State.FAILING),
        (any(_hangs(one) for one in engines), State.SILENT),
        (_stale(engines), State.STALE),
        (not gated, State.NO_GATE),
    ):
        if so:
            return which
    if facts["parked"]:
        return State.WAITING
    return State.SERVING if facts["in_engine"] else State.IDLE


def sentence(facts: Facts) -> str:
    """Say whether requests wait, and why; where the gate cannot see, that first."""
    if not facts["gated"]:
        return _ungated(facts)
    parked = facts["parked_requests"]
    waiting = "nobody waits" if not parked else f"{parked:,} wait{'s' if parked == 1 else ''}"
    cause = "; ".join(one for one in (_place(facts), _next(facts)) if one)
    said = [_trouble(facts), f"{waiting}: {cause}" if cause else waiting]
    return " ".join(f"{_first_upper(one)}." for one in said if one)


def notes(facts: Facts) -> list[str]:
    """What else is not as it should be, a sentence for each engine and fault."""
    several = len(facts["engines"]) > 1
    said: list[str] = []
    for engine in facts["engines"]:
        said += [f"{_subject(engine)} {one}." for one in _faults(engine, several=several)]
    return said


def failures(trend: Facts) -> list[str]:
    """What went wrong with requests in the last quarter of an hour, at most two sentences."""
    bad = trend["answered"].get("5xx", 0)
    answers = count(sum(trend["answered"].values()), "answer", "answers")
    said_bad = [f"{bad:,} of {answers} of the last 15 minutes had a status of 5xx."] if bad else []
    failed = {one.value: trend["ended"].get(one.value, 0) for one in _FAILURES}
    total = sum(failed.values())
    if not total:
        return said_bad
    said = ", ".join(f"{many:,} {outcome}" for outcome, many in failed.items() if many)
    return [
        *said_bad,
        f"{count(total, 'request', 'requests')} failed in the last 15 minutes: {said}.",
    ]


def waits_for(ticket: Facts, facts: Facts) -> str:
    """Why this one of the parked waits, in a few words."""
    if ticket["held"]:
        return "sent back, tried again soon"
    if ticket["priority"] == "warmup":
        return "nobody else to wait"
    if ticket["long_prefill"]:
        if any(one["long_prefill"] for one in facts["engines"]):
            return "the long prefill before it"
        return "an engine to itself (long prefill)"
    return "its turn" if ticket["position"] > 1 else "the next place"


# The sentence


def _ungated(facts: Facts) -> str:
    under_way = facts["requests"]["under_way"]
    said = f"No gate: requests go straight to {_the(facts['engines'])}; {under_way:,} under way."
    stale = _stale(facts["engines"])
    trouble = [*_misbehaviour(facts["engines"]), *([_unread(stale)] if stale else [])]
    return f"{_first_upper('; '.join(trouble))}. {said}" if trouble else said


def _trouble(facts: Facts) -> str:
    """What keeps the gate from seeing the engines, or them from answering; "" for nothing."""
    engines = facts["engines"]
    stale = _stale(engines)
    said = []
    if all(one["hold"] == Hold.REFUSED_CONNECTION.value for one in engines):
        said.append(f"{_the(engines)} {_unreached(engines)}")
        said += [_unread(stale)] if stale else []
        said.append(
            "one request at a time goes to try" if facts["parked"] else "the next request tries it"
        )
        return "; ".join(said)
    said = _misbehaviour(engines)
    if stale:
        some = "" if len(stale) == len(engines) else f"{len(stale)} of {len(engines)} engines: "
        said += [f"{some}{_unread(stale)}", _instead(stale)]
    return "; ".join(said)


def _misbehaviour(engines: Sequence[Facts]) -> list[str]:
    """What is wrong with the answers of the engines, where nothing better can be said of them."""
    if all(_fails(one) for one in engines):
        return [f"{_the(engines)} {_fault(max(engines, key=_faults_in_a_row))}"]
    silent = [one for one in engines if _hangs(one)]
    if silent:
        longest = max(silent, key=lambda one: float(one["silent_seconds"]))
        some = f"one of {_the(engines)}, {name(longest['address'])},"
        which = _the(engines) if len(engines) == 1 else some
        return [f"{which} {_silence(longest)}"]
    return []


def _faults_in_a_row(engine: Facts) -> int:
    return int(engine["faults_in_a_row"])


def _fault(engine: Facts) -> str:
    status = engine["fault_status"]
    hint = _HINTS.get(status, "")
    return f"answered its last {engine['faults_in_a_row']} requests with status {status}{hint}"


def _silence(engine: Facts) -> str:
    silent, expected = duration(engine["silent_seconds"]), about(engine["expected_seconds"])
    return f"seems to hang: nothing has come from it for {silent}, where {expected} would be usual"


def _unreached(engines: Sequence[Facts]) -> str:
    reason = next((one["unreached"] for one in engines if one["unreached"]), "")
    if reason:
        return f"cannot be reached ({name(reason)})"
    return "could not be reached, or broke off an answer"


def _unread(stale: Sequence[Facts]) -> str:
    first = stale[0]
    age = first["sample_age_seconds"]
    since = "gauges never read" if age is None else f"gauges stale for {duration(age)}"
    reason = first["observer"]["reason"]
    return f"{since}: {name(reason)}" if reason else since


def _instead(stale: Sequence[Facts]) -> str:
    return {
        Sight.CLOSED.value: "nothing is let in until they can be read (whenStale: closed)",
        Sight.HELD.value: "admitting by the last reading (whenStale: hold)",
        Sight.NO_GATE.value: "everything is let in, for maxInflight is not known yet",
    }.get(stale[0]["judged_by"], "admitting by our own ledger")


def _place(facts: Facts) -> str:
    """What is in the engines, and what keeps the first of the parked out."""
    engines = facts["engines"]
    inside, places = facts["in_engine"], facts["max_inflight"]
    if _stale(engines):
        runs = f"{inside} of {places} places are taken by our count"
    else:
        runs = f"{_the(engines)} run{'s' if len(engines) == 1 else ''} {inside} of {places}"
    if not facts["parked"]:
        return runs if inside else _nothing_inside(facts)
    if all(_shut(one) for one in engines):
        return ""
    if inside >= places:
        return runs + _not_ours(engines)
    if all(ticket["held"] for ticket in facts["parked"]):
        return f"{runs}, but sent back what waits; it is tried again soon"
    return f"{runs}, but {_kept_out(facts)}"


def _nothing_inside(facts: Facts) -> str:
    """What an engine does that has nothing of anybody's that we count; "" where nobody can tell."""
    engines = facts["engines"]
    if _stale(engines) or all(_shut(one) for one in engines):
        return ""
    if any(one["running"] for one in engines):
        return f"by its gauges {_the(engines)} still runs what has ended here"
    return f"{_the(engines)} {'is' if len(engines) == 1 else 'are'} idle"


def _kept_out(facts: Facts) -> str:
    """Why the first does not go although a place is free."""
    engines = facts["engines"]
    first = facts["parked"][0]
    if first["long_prefill"]:
        if any(one["long_prefill"] for one in engines):
            return "the first is a long prefill, which waits for the long one before it"
        return "the first is a long prefill, which waits until nothing else is in the engine"
    if any(one["long_prefill"] for one in engines):
        return "a long prefill has it to itself until its answer begins"
    usage, threshold = facts["kv_usage"], facts["kv_threshold"]
    if usage is not None and usage >= threshold:
        return f"the KV cache is {percent(usage)} full: from {percent(threshold)} on nothing goes"
    if _lacks_kv(facts):
        return f"the KV cache has too little room for the first ({first['prompt_tokens']:,} tokens)"
    if facts["replicas"] > 1:
        return f"what is free is another replica's to take (of {facts['replicas']})"
    return "nobody is let in yet"


def _lacks_kv(facts: Facts) -> bool:
    """Whether KV cache is what the first lacks where there is a place.

    Of an engine with a place, known gauges and something of ours in it, nothing else is left that
    could keep it out; where replicas could, the prompt alone must be more than is free.
    """
    alone = facts["replicas"] == 1
    tokens = facts["parked"][0]["prompt_tokens"]
    with_place = [one for one in facts["engines"] if one["in_engine"] < one["max_inflight"]]
    return all(
        one["own"]
        and one["judged_by"] in (Sight.FRESH.value, Sight.HELD.value)
        and one["kv_tokens"] is not None
        and one["kv_usage"] is not None
        and (alone or tokens > one["kv_tokens"] * (1 - one["kv_usage"]))
        for one in with_place
    )


def _not_ours(engines: Sequence[Facts]) -> str:
    peers = sum(one["peers"] for one in engines)
    foreign = sum(one["foreign"] for one in engines)
    said = []
    if peers:
        said.append(f"{peers} of them through other replicas")
    if foreign:
        said.append(f"{foreign} of them from elsewhere")
    return f" ({', '.join(said)})" if said else ""


def _next(facts: Facts) -> str:
    if not facts["parked"] or all(_shut(one) for one in facts["engines"]):
        return ""
    eta = facts["parked"][0]["eta_seconds"]
    return "" if eta is None else f"next place in about {about(eta)}"


def _the(engines: Sequence[Facts]) -> str:
    return "the engine" if len(engines) == 1 else f"the {len(engines)} engines"


# Engines one by one


def _shut(engine: Facts) -> bool:
    return engine["hold"] is not None or engine["judged_by"] == Sight.CLOSED.value


def _stale(engines: Sequence[Facts]) -> list[Facts]:
    """Those whose gauges are stale, or have never been read although they were asked for."""
    return [one for one in engines if one["observer"] is not None and _unseen(one)]


def _unseen(engine: Facts) -> bool:
    observer = engine["observer"]
    never_read = engine["sample_age_seconds"] is None and observer["polls"] > 0
    # After a reload a new observer counts its failures from 0, while the gate knows better.
    return bool(observer["stale"] or never_read or engine["judged_by"] in _BLIND)


def _fails(engine: Facts) -> bool:
    return _faults_in_a_row(engine) >= LEAST_FAULTS


def _hangs(engine: Facts) -> bool:
    """Whether an engine is silent for so much longer than it should be that this is worth a word.

    An estimate of a prompt may be half of what it is, and what others have in the engine is not
    known.
    """
    silent = engine["silent_seconds"]
    if silent is None:
        return False
    return bool(silent > max(LEAST_SILENCE_SECONDS, SILENCE_RATIO * engine["expected_seconds"]))


def _faults(engine: Facts, *, several: bool) -> list[str]:
    said: list[str] = []
    refused = several and engine["hold"] == Hold.REFUSED_CONNECTION.value
    if refused:
        said.append(f"{_unreached([engine])}: it gets nothing but a trial")
    if several and _fails(engine):
        said.append(_fault(engine))
    if engine["observer"] is not None:
        said += _of_observer(engine, several=several and not refused)
    if engine["drift"]:
        said.append(
            f"publishes gauges that contradict maxInflight {engine['max_inflight']}: it ran "
            f"{engine['running']} with {engine['waiting']} waiting"
        )
    return said


def _of_observer(engine: Facts, *, several: bool) -> list[str]:
    observer = engine["observer"]
    reason = name(observer["reason"])
    if _stale([engine]):
        return [_unread([engine]) + f"; {_instead([engine])}"] if several else []
    if observer["degraded"]:
        return [f"answers without all gauges of its kind: {reason}"]
    if not observer["ok"] and observer["polls"]:
        return [f"did not answer the last poll: {reason}"]
    return []


def _subject(engine: Facts) -> str:
    return name(engine["address"])


def _first_upper(text: str) -> str:
    return text[0].upper() + text[1:]
