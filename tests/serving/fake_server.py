"""The real server over the fake engine: the arguments after `--` go to the fake engine."""

import sys
from pathlib import Path

from engine.serving.server import main

if __name__ == "__main__":
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    command = (sys.executable, str(Path(__file__).parent / "fake_engine.py"), *given[cut + 1 :])
    sys.exit(main(given[:cut], command))
