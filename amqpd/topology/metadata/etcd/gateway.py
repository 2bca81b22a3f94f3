"""A client of etcd's JSON gateway: several endpoints, TLS, a log-in; what became of a request that failed.

What comes in: the path of a call and its message. What goes out: the answer; `EtcdRefused` when etcd says no; what is
below when no answer came.
Rules: 1. `StoreUnavailable`: nothing happened, on no endpoint. `OutcomeUnknown`: a request that changes something was
sent, and no answer says what became of it. Such a request is never sent again here. 2. The endpoint that answered
last is asked first; the next one when it does not answer. 3. A token that etcd does not take any more is renewed,
once for each request. 4. Only addresses that were configured are spoken to: no proxy of the environment, no
redirection.
Not here: how long one goes on trying (`patience.py`), what is asked (`transactions.py`, `store.py`).
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import httpx2
import trio

from amqpd.topology.metadata.etcd.messages import Message
from amqpd.topology.metadata.etcd.patience import EtcdPatience
from amqpd.topology.metadata.store import Compacted, OutcomeUnknown, StoreFull, StoreUnavailable

# Loopback and one rack answer in a millisecond, another region in some 100 ms; etcd gives a new leader up to a
# second.
CONNECT_TIMEOUT_S = 2.0
# etcd itself gives up on a proposal after 5 s and two election timeouts (7 s with its defaults): to wait for less
# makes outcomes unknown that it would still have told.
ANSWER_TIMEOUT_S = 8.0
# A watch that is silent this long is opened again from where it was: a network can lose a connection without a word.
SILENCE_S = 10.0

TXN, RANGE, WATCH = "/v3/kv/txn", "/v3/kv/range", "/v3/watch"
LOG_IN = "/v3/auth/authenticate"
GRANT, KEEP_ALIVE, REVOKE = "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"
TIME_TO_LIVE = "/v3/lease/timetolive"

# What etcd answers with (google.golang.org/grpc/codes) when it did not carry out the request, nor will.
INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, EXHAUSTED = 3, 5, 7, 8
FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED = 9, 11, 12, 16
_DEFINITE = frozenset(
    {
        INVALID_ARGUMENT,
        NOT_FOUND,
        PERMISSION_DENIED,
        EXHAUSTED,
        FAILED_PRECONDITION,
        OUT_OF_RANGE,
        UNIMPLEMENTED,
        UNAUTHENTICATED,
    }
)
# Of a transport's failures those before anything of the request was sent.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class EtcdRefused(Exception):
    """etcd refuses the request, which had no effect. `code` is gRPC's."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Silent(StoreUnavailable):
    """No endpoint of etcd answers. The text names each, with what came instead."""


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """The access to etcd. `endpoints`: `host:port` each. `tls`: how they are trusted; None: without TLS. `user`
    empty: etcd has no authentication."""

    endpoints: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{'etcd' if self.tls is None else 'etcds'}://{','.join(self.endpoints)}"


class Gateway:
    """The connections to one etcd cluster. `aclose` ends them."""

    def __init__(self, access: EtcdAccess) -> None:
        self.access = access
        self._token = ""
        self._at = 0
        self._silent: dict[str, str] = {}
        """endpoints that did not answer when they were asked last, and what came instead"""
        timeout = httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        verify = access.tls if access.tls is not None else True
        self._client = httpx2.AsyncClient(verify=verify, timeout=timeout, trust_env=False, follow_redirects=False)

    async def ask(self, path: str, message: Message) -> Message:
        """A call that changes nothing, or nothing more the second time. Raises EtcdRefused, StoreUnavailable."""
        try:
            return await self._pass(path, message, repeatable=True)
        except OutcomeUnknown as error:
            raise StoreUnavailable(str(error)) from error

    async def ask_soon(self, path: str, message: Message, within_s: float) -> Message:
        """The same, of one endpoint after the other, each for at most `within_s`: one that is silent is left. Raises
        EtcdRefused, StoreUnavailable."""
        for _ in self.access.endpoints:
            asked = self._at
            with trio.move_on_after(within_s):
                return await self.ask(path, message)
            self._did_not_answer(asked, f"no answer in {within_s:g} s")
        raise self.silence()

    async def change(self, path: str, message: Message) -> Message:
        """A call that must not be carried out twice. Raises EtcdRefused, StoreUnavailable, OutcomeUnknown."""
        return await self._pass(path, message, repeatable=False)

    async def follow(self, path: str, message: Message, receive: Callable[[Message], bool]) -> None:
        """The answers of a call that has many, one by one, until `receive` returns False or nothing comes for
        `SILENCE_S`. From the endpoint that answered last. Raises StoreUnavailable, and what `receive` raises."""
        timeout = httpx2.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)
        failure: Exception | None = None
        asked = self._at
        try:
            headers = await self._authorised()
            with trio.CancelScope() as enough:
                async with self._client.stream(
                    "POST", self._url(path), json=message, headers=headers, timeout=timeout
                ) as response:
                    parts, rest = response.aiter_bytes(), b""
                    while True:
                        # An answer that is left in between is left by a cancellation in here: the library's
                        # generators end by exceptions from inside, and are the garbage collector's otherwise.
                        *lines, rest = (rest + await anext(parts)).split(b"\n")
                        try:
                            if not all(receive(self._result(line)) for line in lines if line):
                                enough.cancel()
                        except (StoreUnavailable, Compacted, _Unclear) as error:
                            failure = error
                            enough.cancel()
            if failure is not None:
                raise failure
        except httpx2.ReadTimeout:
            return
        except StopAsyncIteration:
            raise StoreUnavailable(f"{self.access} ended a stream of answers") from None
        except (httpx2.TransportError, _Unclear) as error:
            self._did_not_answer(asked, _said(error))
            raise self.silence() from error

    def _result(self, line: bytes) -> Message:
        answer = _parsed(line)
        if "result" not in answer:
            self._token = ""  # that may be the reason; a new one costs one request
            raise StoreUnavailable(f"{self.access} ended a stream of answers: {_reason(answer)}")
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def explained(self, refused: EtcdRefused) -> Exception:
        """What it is for the contract that etcd says no."""
        sentence = f"the metadata store {self.access} refuses a request: {refused.reason}"
        if refused.code == EXHAUSTED and "space" in refused.reason:
            return StoreFull(sentence)
        if "too large" in refused.reason or "too many operations" in refused.reason:
            return ValueError(sentence)
        # A permission, a user, a log-in: an operator can give it, and nothing happened.
        return StoreUnavailable(sentence)

    def patience(self, wait_s: float) -> EtcdPatience:
        """For one transaction or page over this gateway."""
        return EtcdPatience(wait_s, self.silence)

    def silence(self) -> Silent:
        """Which endpoints did not answer, and why, as far as that is known."""
        said = [f"{each}: {self._silent.get(each, 'no answer yet')}" for each in self.access.endpoints]
        scheme = "etcd" if self.access.tls is None else "etcds"
        return Silent(f"the metadata store ({scheme}) does not answer: {'; '.join(said)}")

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _pass(self, path: str, message: Message, *, repeatable: bool) -> Message:
        """One try on each endpoint, as long as nothing happened."""
        failure: Exception | None = None
        for _ in self.access.endpoints:
            asked = self._at
            try:
                return await self._request(path, message)
            except _NOT_SENT as error:
                failure = error
            except (httpx2.TransportError, _Unclear) as error:
                failure = error
                if not repeatable:
                    self._did_not_answer(asked, _said(error))
                    raise OutcomeUnknown(f"{self.access} did not say what became of a request: {error!r}") from error
            self._did_not_answer(asked, _said(failure))
        raise self.silence() from failure

    async def _authorised(self) -> dict[str, str]:
        if self.access.user and not self._token:
            await self._log_in()
        return {"Authorization": self._token} if self._token else {}

    async def _request(self, path: str, message: Message) -> Message:
        try:
            return await self._post(path, message, await self._authorised())
        except EtcdRefused as refused:
            outdated = refused.code == UNAUTHENTICATED or "auth store is old" in refused.reason
            if not outdated or not self.access.user:
                raise
        self._token = ""
        return await self._post(path, message, await self._authorised())

    async def _log_in(self) -> None:
        given = {"name": self.access.user, "password": self.access.password}
        try:
            self._token = (await self._post(LOG_IN, given, {}))["token"]
        except (httpx2.TransportError, _Unclear) as error:
            # Nothing of the request itself was sent.
            raise httpx2.ConnectError(f"no log-in: {error!r}") from error
        except EtcdRefused as refused:
            if refused.code == FAILED_PRECONDITION:  # "authentication is not enabled"
                return
            sentence = f"{self.access} refuses the user {self.access.user!r}: {refused.reason}"
            self._silent[self.access.endpoints[self._at]] = f"refuses the user {self.access.user!r}"
            raise StoreUnavailable(sentence) from refused

    async def _post(self, path: str, message: Message, headers: Mapping[str, str]) -> Message:
        endpoint = self.access.endpoints[self._at]
        response = await self._client.post(self._url(path), json=message, headers=headers)
        answer = _parsed(response.content)
        if response.status_code == 200 and "error" not in answer:
            self._silent.pop(endpoint, None)
            return answer
        code = int(answer.get("code", -1))
        if code in _DEFINITE:
            self._silent.pop(endpoint, None)
            raise EtcdRefused(code, _reason(answer))
        raise _Unclear(f"status {response.status_code}: {_reason(answer)}")

    def _url(self, path: str) -> str:
        scheme = "http" if self.access.tls is None else "https"
        return f"{scheme}://{self.access.endpoints[self._at]}{path}"

    def _did_not_answer(self, asked: int, reason: str) -> None:
        """This endpoint. The next one is asked then, unless another request has gone on already."""
        self._silent[self.access.endpoints[asked]] = reason
        if self._at == asked:
            self._at = (self._at + 1) % len(self.access.endpoints)


class _Unclear(Exception):
    """etcd answers, and does not say whether the request is or will be carried out."""


def _said(failure: Exception) -> str:
    """What came instead of an answer: what the system says, or the first words in what led to it."""
    if isinstance(failure, httpx2.ConnectTimeout):
        return f"no connection in {CONNECT_TIMEOUT_S:g} s"
    if isinstance(failure, httpx2.ReadTimeout):
        return f"connected, and no answer in {ANSWER_TIMEOUT_S:g} s"
    found = list(_behind(failure))
    said = [_plain(each.strerror, each.errno) for each in found if isinstance(each, OSError) and each.strerror]
    words = list(dict.fromkeys(said)) or [str(each) for each in found if str(each)][:1] or [type(failure).__name__]
    return "; ".join(words)


def _plain(said: str, number: int | None) -> str:
    """What the system says, without the address that trio puts in front of it."""
    plain = os.strerror(number or 0)
    return plain if said.endswith(plain) else said


def _behind(failure: BaseException) -> Iterator[BaseException]:
    """It, and what led to it, also where the library says that it does not matter."""
    yield failure
    if isinstance(failure, BaseExceptionGroup):
        for each in failure.exceptions:
            yield from _behind(each)
    if (before := failure.__cause__ or failure.__context__) is not None:
        yield from _behind(before)


def _parsed(text: str | bytes) -> Message:
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise _Unclear(f"no JSON: {text[:100]!r}") from error
    if not isinstance(answer, dict):
        raise _Unclear(f"no object: {text[:100]!r}")
    return answer


def _reason(answer: Message) -> str:
    """A call's failure has a text, a stream's an object."""
    error = answer.get("error", answer)
    return str(error.get("message", error) if isinstance(error, dict) else error)
