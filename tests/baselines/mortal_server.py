"""A rival that can be told to die in the middle of a point; its child and its segment outlive it. Arguments: --port N.

Environment: SERVED, the name of its model; DEATH, a file: the third request after it was made kills the server.
"""

import json
import mmap
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SHM = Path("/dev/shm")


class Handler(BaseHTTPRequestHandler):
    doomed = 0

    def do_POST(self) -> None:
        death = Path(os.environ["DEATH"])
        Handler.doomed += death.exists()
        if Handler.doomed == 3:
            death.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "text": "x", "finish_reason": "length"}
        event = json.dumps({"model": os.environ["SERVED"], "choices": [choice], "usage": {"completion_tokens": 1}})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"data: {event}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, *_: object) -> None:
        pass


def keep_segment() -> mmap.mmap:
    path = SHM / f"flowprefill-mortal-{os.getpid()}"
    path.write_bytes(b"\0" * 4096)
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 4096)


def main() -> None:
    kept = keep_segment()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
    kept.close()


if __name__ == "__main__":
    main()
