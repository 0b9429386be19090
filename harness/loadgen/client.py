"""One request to an OpenAI-compatible /v1/completions, streamed."""

import asyncio
import errno
import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import aiohttp
from yarl import URL

from engine.core.clock import NS_PER_S
from engine.core.record import RequestRecord, Status
from harness.loadgen.reply import Reply, ReplyError, stated_error
from harness.loadgen.request_body import PreparedRequest
from harness.loadgen.settings import PlayerSettings, Target
from harness.loadgen.sse import SSEEvent, SSEParser

IDLE_CONNECTION_S = 2.0
"""Idle connections are reused this long: servers close theirs after 5 s, and a request must not meet that."""

REASON_CHARS = 300
"""A reason is one line for a table, however much the server had to say."""

NO_STREAMS = ("application/json", "text/html")
"""Content types of an answer that is whole, whatever it says."""

NO_FILE = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL)
"""What the client lacks to open a connection: a file, or a local port. No word on the server."""

CLOSE_GRACE_S = 1.0
"""After [DONE] the server has this long to end the reply; then the connection is not reused."""


@dataclass(slots=True)
class Exchange:
    """One request under way; `record` tells what is known of it at any moment.

    due_at_ns and the other instants are on CLOCK_MONOTONIC. status: None while it is under way.
    without_file: it could not be sent because this process had no open file, or this machine no local port, left.
    http_status: of an answer that was an error.
    """

    prepared: PreparedRequest
    due_at_ns: int
    ignore_eos: bool
    sent_at_ns: int | None = None
    status: Status | None = None
    reason: str = ""
    without_file: bool = False
    http_status: int | None = None
    reply: Reply = field(init=False)

    def __post_init__(self) -> None:
        self.reply = Reply(self.prepared.plan.max_tokens, self.ignore_eos)

    def end(self, status: Status, reason: str = "") -> None:
        """Settle how the request ended; the first word stands."""
        if self.status is None:
            self.status, self.reason = status, " ".join(reason.split())[:REASON_CHARS]

    def end_of_stream(self, broken: str = "") -> None:
        """No more events come; broken: how the stream broke, if it did."""
        self.reply.close()
        self.end(*self.reply.outcome(broken))

    def cut(self, reason: str) -> None:
        """The run ends before the request does."""
        if self.sent_at_ns is None:
            self.end(Status.UNSENT, reason)
        elif self.reply.done:
            self.end_of_stream()
        else:
            self.end(Status.UNFINISHED, reason)

    def record(self, start_ns: int) -> RequestRecord:
        """The facts, with instants counted from `start_ns`."""
        plan, reply = self.prepared.plan, self.reply

        def after_start(at_ns: int | None) -> int | None:
            return None if at_ns is None else at_ns - start_ns

        return RequestRecord(
            request_id=plan.request_id,
            task=plan.task,
            prompt_tokens=len(plan.token_ids),
            max_tokens=plan.max_tokens,
            ttft_slo_ns=plan.slo.ttft_ns,
            tbt_slo_ns=plan.slo.tbt_ns,
            due_at_ns=self.due_at_ns - start_ns,
            sent_at_ns=after_start(self.sent_at_ns),
            first_token_at_ns=after_start(reply.first_token_at_ns),
            last_token_at_ns=after_start(reply.last_token_at_ns),
            output_tokens=reply.output_tokens,
            output_estimated=reply.output_estimated and reply.counted_tokens > 0,
            tbt_max_ns=reply.tbt_max_ns,
            server_prompt_tokens=reply.usage.prompt_tokens,
            cached_tokens=reply.usage.cached_tokens,
            status=Status.UNSENT if self.status is None else self.status,
            reason=self.reason,
        )


class CompletionsClient:
    """Sends requests over one session. Use it as an async context manager; it retries nothing."""

    def __init__(self, target: Target, settings: PlayerSettings) -> None:
        self._settings = settings
        self._url = URL(target.url("completions"))
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # a compressing server would hold tokens back
        }
        if target.api_key is not None:
            self._headers["Authorization"] = f"Bearer {target.api_key}"
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "CompletionsClient":
        stamping = aiohttp.TraceConfig()
        stamping.on_request_chunk_sent.append(_stamp_sent)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S, ttl_dns_cache=None),
            # No time limit of aiohttp's own: request_timeout_s and the SLO decide, in `send`.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[stamping],
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, exchange: Exchange) -> None:
        """Send, read the reply to its end, settle `exchange`. Being cancelled closes the connection and settles
        nothing. Failures of the server or the network are statuses, never exceptions.
        """
        exchange.sent_at_ns = time.monotonic_ns()
        timeout_at_ns = exchange.sent_at_ns + round(self._settings.request_timeout_s * NS_PER_S)
        give_up_at_ns = instant_to_give_up_ns(exchange, self._settings.give_up_slo_multiple)
        first_ns = timeout_at_ns if give_up_at_ns is None else min(timeout_at_ns, give_up_at_ns)
        # The loop's time is CLOCK_MONOTONIC in seconds.
        deadline = asyncio.timeout_at(first_ns / NS_PER_S)
        try:
            async with deadline:
                await self._stream(exchange, deadline, timeout_at_ns)
        except ReplyError as error:
            exchange.http_status = error.http_status
            exchange.end(error.status, error.reason)
        except (aiohttp.ClientError, OSError) as error:  # the deadline's TimeoutError is an OSError too
            if not deadline.expired():
                exchange.without_file = getattr(error, "errno", None) in NO_FILE
                exchange.end_of_stream(broken=str(error) or type(error).__name__)
            elif exchange.reply.done:
                exchange.end_of_stream()
            elif first_ns < timeout_at_ns and exchange.reply.first_token_at_ns is None:
                multiple = self._settings.give_up_slo_multiple
                exchange.end(Status.GAVE_UP, f"no token {multiple:g} x TTFT SLO after it was due")
            else:
                exchange.end(Status.TIMED_OUT, f"not over {self._settings.request_timeout_s:g} s after it was sent")

    async def _stream(self, exchange: Exchange, deadline: asyncio.Timeout, timeout_at_ns: int) -> None:
        if self._session is None:
            raise RuntimeError("CompletionsClient is used outside its context")
        reply = exchange.reply
        async with self._session.post(
            self._url,
            data=exchange.prepared.body,
            headers={**self._headers, "X-Request-Id": exchange.prepared.plan.request_id},
            allow_redirects=False,
            trace_request_ctx=exchange,
        ) as response:
            if response.status != 200:
                raise stated_error(await response.read(), response.status)
            if response.content_type in NO_STREAMS:
                stated = stated_error(await response.read(), response.status)
                raise ReplyError(f"the answer is not a stream: {stated.reason}")
            parser = SSEParser()
            async for read in response.content.iter_any():
                at_ns = time.monotonic_ns()  # before any parsing
                self._feed(reply, parser.feed(read), at_ns, deadline, timeout_at_ns)
            for event in parser.close():
                reply.feed(event, time.monotonic_ns())
        exchange.end_of_stream()

    @staticmethod
    def _feed(reply: Reply, events: list[SSEEvent], at_ns: int, deadline: asyncio.Timeout, timeout_at_ns: int) -> None:
        waited = reply.first_token_at_ns is None
        for event in events:
            reply.feed(event, at_ns)
        if reply.done:
            closing_ns = at_ns + round(CLOSE_GRACE_S * NS_PER_S)
            deadline.reschedule(min(closing_ns, timeout_at_ns) / NS_PER_S)
        elif waited and reply.first_token_at_ns is not None:
            deadline.reschedule(timeout_at_ns / NS_PER_S)  # the user stays once the first token is there


async def _stamp_sent(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _chunk: aiohttp.TraceRequestChunkSentParams
) -> None:
    """The body goes out now: a truer instant of sending than the call, which may wait for the event loop."""
    exchange: Exchange = context.trace_request_ctx
    exchange.sent_at_ns = time.monotonic_ns()


def instant_to_give_up_ns(exchange: Exchange, multiple: float | None) -> int | None:
    """When a user without a token would leave; None = never."""
    slo_ns = exchange.prepared.plan.slo.ttft_ns
    return None if multiple is None or slo_ns is None else exchange.due_at_ns + round(multiple * slo_ns)
