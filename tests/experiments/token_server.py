"""The least a server needs to look ready: one streamed token per completion. Arguments: --port N."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "text": "x", "finish_reason": "length"}
        event = json.dumps({"model": os.environ["SERVED"], "choices": [choice], "usage": {"completion_tokens": 1}})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"data: {event}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    if "DIE" in os.environ:
        print(os.environ["DIE"], flush=True)
        sys.exit(7)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
