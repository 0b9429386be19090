"""A prefill or decode instance without an engine. The first token of a prompt says where it stops, fails or dies."""

import argparse
import dataclasses
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

from engine.core.record import EngineReport
from engine.serving.channel import BlockingChannel, unpack_token_ids
from engine.serving.engine_state import EngineDescription, LiveState, Snapshot
from engine.serving.kv_files import KVFolder

HOLD_PREFILL, HOLD_SEND, HOLD_DECODE, HOLD_STREAM = 1, 2, 3, 4
FAIL_PREFILL, FAIL_SEND, FAIL_DECODE, FAIL_STREAM = 5, 6, 7, 8
HOLD_ON_PREFILL_0, HOLD_ON_DECODE_0, DIE_ON_PREFILL = 9, 10, 11
KV_BLOCKS = 100
BEAT_S = 0.05


class Instance:
    """Requests it holds take one KV block each."""

    def __init__(self, channel: BlockingChannel, name: str, folder: KVFolder) -> None:
        self.channel = channel
        self.name = name
        self.folder = folder
        self.held: dict[str, int] = {}
        self.sent = 0
        self.report = EngineReport()

    def serve(self) -> None:
        while (frame := self.channel.receive()) is not None:
            header, raw = frame
            match header["kind"]:
                case "generate":
                    self.generate(header, unpack_token_ids(raw))
                case "send":
                    self.send(header["request_id"])
                case "cancel":
                    self.held.pop(header["request_id"], None)
                    self.count("cancelled_requests")
                case "ask":
                    self.answer(header)
                case "stop":
                    return

    def generate(self, header: dict, token_ids: tuple[int, ...]) -> None:
        request_id, what, count = header["request_id"], token_ids[0], header["max_tokens"]
        tokens = [
            [request_id, 97 + (sum(token_ids) + i) % 26, "length" if i == count - 1 else None] for i in range(count)
        ]
        receives = header.get("hand_over") == "receives"
        self.held[request_id] = what
        if not receives:
            if what == DIE_ON_PREFILL:
                os._exit(3)
            if what == HOLD_PREFILL or (what == HOLD_ON_PREFILL_0 and self.name == "prefill-0"):
                return
            if what == FAIL_PREFILL:
                self.fail(request_id, "the prefill broke")
                return
            self.give(tokens[:1])
            return
        assert self.folder.open(header["ticket"])[:2] == b"kv"
        assert header["first_token"] == tokens[0][1]
        self.count("kv_received")
        if what == HOLD_DECODE or (what == HOLD_ON_DECODE_0 and self.name == "decode-0"):
            return
        if what == FAIL_DECODE:
            self.fail(request_id, "the KV cannot be read")
            return
        self.give(tokens[1:2])
        if what == FAIL_STREAM:
            self.fail(request_id, "a decode step broke")
        elif what != HOLD_STREAM:
            for token in tokens[2:]:
                self.give([token])

    def send(self, request_id: str) -> None:
        what = self.held.get(request_id)
        if what is None or what == HOLD_SEND:
            return
        if what == FAIL_SEND:
            self.fail(request_id, "no room for the KV")
            return
        ticket, memory = self.folder.create(os.getppid(), os.getpid(), self.sent, 64)
        memory[:2] = b"kv"
        self.sent += 1
        self.count("kv_sent")
        del self.held[request_id]
        self.channel.send({"kind": "sent", "request_id": request_id, "ticket": ticket})

    def give(self, tokens: list[list]) -> None:
        self.channel.send({"kind": "outputs", "outputs": tokens})
        if tokens and tokens[-1][2] is not None:
            self.count("completed_requests")
            del self.held[tokens[-1][0]]

    def fail(self, request_id: str, reason: str) -> None:
        del self.held[request_id]
        self.channel.send({"kind": "failed", "request_id": request_id, "reason": reason})

    def count(self, name: str) -> None:
        self.report = dataclasses.replace(self.report, **{name: getattr(self.report, name) + 1})

    def answer(self, header: dict) -> None:
        live = LiveState(0, 0, 0, 0, KV_BLOCKS - len(self.held), KV_BLOCKS, 0, len(self.held))
        snapshot = Snapshot(self.report, live).to_json()
        self.channel.send({"kind": "snapshot", "ticket": header["ticket"], "snapshot": snapshot})
        if header["reset"]:
            self.report = EngineReport()


def beat(channel: BlockingChannel, file: Path) -> None:
    """As the engine's watchdog does; the file holds what hangs."""
    while True:
        stall = file.read_text(encoding="utf-8") if file.exists() else ""
        channel.send({"kind": "beat", "stall": stall, "stalls": 0})
        time.sleep(BEAT_S)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel-fd", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--refuse", default="", help="the name of one that refuses its settings")
    parser.add_argument("--once", default="", help="a folder: instances start once and never again")
    parser.add_argument("--beats", default="", help="a folder: each instance beats what the file of its name says")
    arguments = parser.parse_args()
    channel = BlockingChannel(socket.socket(fileno=arguments.channel_fd))
    start = channel.receive()
    assert start is not None
    if arguments.refuse == arguments.name:
        channel.send({"kind": "refused", "reason": "--kv-blocks: too many"})
        return 2
    if arguments.once:
        try:
            Path(arguments.once, arguments.name).mkdir()
        except FileExistsError:
            return 1
    folder = KVFolder(Path(json.loads(start[0]["settings"])["hand_over_folder"]))
    description = EngineDescription("fake", "", 300, 1000, KV_BLOCKS, 16, "cpu", "none")
    channel.send({"kind": "ready", "description": dataclasses.asdict(description)})
    if arguments.beats:
        threading.Thread(target=beat, args=(channel, Path(arguments.beats, arguments.name)), daemon=True).start()
    Instance(channel, arguments.name, folder).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
