"""A rival played by a small server: one request at a time; it may refuse, or die once, from the n-th request on.

Arguments: --port N. Environment: SERVED (model), SECONDS (a request), REFUSES_FROM, DIES_AT (requests of its life),
DIED (a file: it dies only where there is none yet).
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NEVER = 10**9


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.turn = threading.Lock()
        self.count = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.turn:
            self.server.count += 1
            number = self.server.count
            time.sleep(float(os.environ["SECONDS"]))
        if number >= int(os.environ.get("DIES_AT", NEVER)) and not Path(os.environ["DIED"]).exists():
            Path(os.environ["DIED"]).touch()
            os._exit(9)
        if number >= int(os.environ.get("REFUSES_FROM", NEVER)):
            self.send_error(503)
            return
        choice = {"index": 0, "text": "x", "finish_reason": "length"}
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": 1}
        event = json.dumps({"model": os.environ["SERVED"], "choices": [choice], "usage": usage})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"data: {event}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    Server(int(sys.argv[sys.argv.index("--port") + 1])).serve_forever()
