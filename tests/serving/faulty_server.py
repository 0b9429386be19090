"""The real server over an engine with faults in it."""

import sys
from pathlib import Path

from engine.serving.server import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], (sys.executable, str(Path(__file__).parent / "faulty_instance.py"))))
