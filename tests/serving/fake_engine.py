"""An engine process without an engine: it speaks the channel's messages and obeys the first token of a prompt."""

import argparse
import dataclasses
import os
import signal
import socket
import sys

from engine.core.record import EngineReport
from engine.serving.channel import BlockingChannel, unpack_token_ids
from engine.serving.engine_state import EngineDescription, LiveState, Snapshot

HOLD, DIE, REJECT, FAIL_AFTER_ONE, BREAK, NEVER = 7, 8, 9, 10, 11, 12
KV_BLOCKS = 100


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel-fd", type=int, required=True)
    parser.add_argument("--refuse", default="")
    parser.add_argument("--plain", action="store_true", help="no token means anything")
    parser.add_argument("--context-tokens", type=int, default=1000)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = BlockingChannel(socket.socket(fileno=arguments.channel_fd))
    assert channel.receive() is not None
    if arguments.refuse:
        channel.send({"kind": "refused", "reason": arguments.refuse})
        return 2
    description = EngineDescription("fake", "", 300, arguments.context_tokens, KV_BLOCKS, 16, "cpu", "none")
    channel.send({"kind": "ready", "description": dataclasses.asdict(description)})
    held: set[str] = set()
    report = EngineReport(blocking_ns=(1_500_000, 3_000_000), preemptions=2)
    while (frame := channel.receive()) is not None:
        header, raw = frame
        match header["kind"]:
            case "generate":
                generate(channel, header, unpack_token_ids(raw), held, arguments.plain)
            case "cancel":
                held.discard(header["request_id"])
                report = dataclasses.replace(report, cancelled_requests=report.cancelled_requests + 1)
            case "ask":
                live = LiveState(len(held), 0, 0, 0, KV_BLOCKS - len(held), KV_BLOCKS, 0)
                channel.send(
                    {"kind": "snapshot", "ticket": header["ticket"], "snapshot": Snapshot(report, live).to_json()}
                )
                report = EngineReport() if header["reset"] else report
            case "stop":
                return 0
    return 0


def generate(channel: BlockingChannel, header: dict, token_ids: tuple[int, ...], held: set[str], plain: bool) -> None:
    request_id, count = header["request_id"], header["max_tokens"]
    tokens = [[request_id, 97 + (sum(token_ids) + i) % 26, "length" if i == count - 1 else None] for i in range(count)]
    match -1 if plain else token_ids[0]:
        case 7:
            held.add(request_id)
        case 8:
            os._exit(3)
        case 9 | 12 as which:
            reason = "no room for it"
            channel.send({"kind": "rejected", "request_id": request_id, "reason": reason, "never": which == NEVER})
        case 10:
            channel.send({"kind": "outputs", "outputs": tokens[:1]})
            channel.send({"kind": "failed", "request_id": request_id, "reason": "the task broke"})
        case 11:
            channel.send({"kind": "died", "reason": "the driver broke"})
            sys.exit(1)
        case _:
            for each in tokens:
                channel.send({"kind": "outputs", "outputs": [each]})


if __name__ == "__main__":
    sys.exit(main())
