"""A server that makes stopping hard: ignores SIGTERM, forks children that do, too, hides one of them, keeps a segment.

Arguments: port, name of a shared memory segment. One child stays in the group; one leaves session and parent behind.
A named semaphore (sem.NAME-semaphore) is kept, too, as vLLM and SGLang do.
"""

import _multiprocessing
import mmap
import os
import signal
import socket
import sys
import time
from pathlib import Path


def linger() -> None:
    while True:
        time.sleep(60)


def main(port: int, segment: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path = Path("/dev/shm") / segment
    path.write_bytes(b"\0" * 4096)
    with path.open("r+b") as file:
        kept = mmap.mmap(file.fileno(), 4096)
    semaphore = _multiprocessing.SemLock(1, 1, 1, f"/{segment}-semaphore", False)  # type: ignore[attr-defined]
    if os.fork() == 0:
        linger()
    if os.fork() == 0:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        linger()
    os.wait()
    with socket.create_server(("127.0.0.1", port)):
        print("up", flush=True)
        linger()
    del semaphore
    kept.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
