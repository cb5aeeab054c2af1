"""Checks of a store: one object is put, got back, listed and deleted, whatever happens between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from twisted_gateway.check.client import Answer
from twisted_gateway.check.gateway import members, objects
from twisted_gateway.check.probe import Probe
from twisted_gateway.check.results import Failed, Skipped
from twisted_gateway.check.runner import Runner, Work

PREFIX = "llm-gateway-check/"
"""Of the keys that are put."""
_IN_ORDER = ("s3-list", "s3-put", "s3-get", "s3-delete")
NO_BUCKET = "no bucket was given that may be written to (--bucket)"

Guard = Callable[[str, Work], Work]
"""Given a resource and a check of it, gives one that is not made where the token falls short."""
Token = Callable[[Probe], str]


class S3Checks:
    """Makes the checks of stores.

    Args:
        runner: makes each.
        bucket: the one that is written to; "" for none.
    """

    def __init__(self, runner: Runner, bucket: str) -> None:
        """Take what the class documents."""
        self._runner = runner
        self._bucket = bucket

    async def check(
        self, service: str, guard: Guard, token: Token, *, lacks: str, named: bool
    ) -> None:
        """Check one store.

        Args:
            service: its name.
            guard: see `Guard`.
            token: gives what requests to it bear.
            lacks: what else is wanting for a listing, "" for nothing.
            named: whether the user named it: that there is no bucket is then a failure.
        """
        if not self._bucket:
            said = f"{lacks}; {NO_BUCKET}" if lacks else NO_BUCKET
            why = Failed(said) if named else Skipped(said)
            await self._runner.check("s3-list", service, partial(_raise, why))
            await self._leave_out(service, "s3-list")
            return
        key = f"{PREFIX}{self._runner.report.run_id}"
        store = _Store(self._runner, service, self._bucket, key, token)
        check = self._runner.check
        if not await check("s3-list", service, guard("list", store.list)):
            await self._leave_out(service, "s3-list")
            return
        if not await check("s3-put", service, guard("put", store.put)):
            await self._leave_out(service, "s3-put")
            return
        await check("s3-get", service, guard("get", store.get))
        await check("s3-delete", service, guard("delete", store.delete))

    async def _leave_out(self, service: str, after: str) -> None:
        """Skip those that come after one that has not passed."""
        why = Skipped(f"{after} has not passed")
        for name in _IN_ORDER[_IN_ORDER.index(after) + 1 :]:
            await self._runner.check(name, service, partial(_raise, why))


async def _raise(why: Exception, probe: Probe) -> str:
    raise why


class _Store:
    """Requests to a store, about one object."""

    def __init__(self, runner: Runner, service: str, bucket: str, key: str, token: Token) -> None:
        self._what = f"{bucket}/{key} of {service}"
        self._content = f"{key} {service}\r\n\0\xff".encode("latin-1")
        self._runner = runner
        self._service = service
        self._bucket = bucket
        self._key = key
        self._token = token

    @property
    def _object(self) -> Mapping[str, str]:
        return {"bucket": self._bucket, "key": self._key}

    async def list(self, probe: Probe) -> str:
        await self._keys(probe)
        return f"the bucket {self._bucket} is there"

    async def put(self, probe: Probe) -> str:
        # Before it is put: when no answer comes it may be there all the same.
        self._runner.leave(self._what, self._remove)
        answer = await probe.service(
            self._service,
            "put",
            "PUT",
            parameters=self._object,
            headers={"Content-Type": "application/octet-stream"},
            body=self._content,
            token=self._token(probe),
        )
        if 400 <= answer.status < 500:
            self._runner.removed(self._what)
        probe.expect(answer, 200)
        return f"{len(self._content)} bytes at {self._key}"

    async def get(self, probe: Probe) -> str:
        answer = await self._get(probe)
        probe.expect(answer, 200)
        if answer.body != self._content:
            were, came = len(self._content), len(answer.body)
            raise Failed(f"{were} bytes were put, and {came} other ones came back")
        if self._key not in await self._keys(probe):
            raise Failed("the object is not in the listing")
        return ""

    async def delete(self, probe: Probe) -> str:
        answer = await probe.service(
            self._service, "delete", "DELETE", parameters=self._object, token=self._token(probe)
        )
        probe.expect(answer, 204)
        gone = await self._get(probe)
        if gone.status != 404:
            raise Failed(f"it is not gone after it was deleted: {gone.words}")
        self._runner.removed(self._what)
        return ""

    async def _remove(self, probe: Probe) -> str:
        """Delete the object, if it is there."""
        answer = await probe.service(
            self._service, "delete", "DELETE", parameters=self._object, token=self._token(probe)
        )
        probe.expect(answer, 204, 404)
        return ""

    async def _get(self, probe: Probe) -> Answer:
        return await probe.service(
            self._service, "get", parameters=self._object, token=self._token(probe)
        )

    async def _keys(self, probe: Probe) -> set[str]:
        answer = await probe.service(
            self._service,
            "list",
            parameters={"bucket": self._bucket, "prefix": self._key},
            token=self._token(probe),
        )
        probe.expect(answer, 200, hint="--bucket names one that there is")
        found = members(answer.tree).get("objects")
        if not isinstance(found, list):
            raise Failed("the answer has no list 'objects'")
        return {str(one.get("key")) for one in objects(found)}
