"""The real proxy over fake instances: the arguments after `--` go to the instances."""

import sys
from pathlib import Path

from engine.serving.proxy import main

if __name__ == "__main__":
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    command = (sys.executable, str(Path(__file__).parent / "fake_instance.py"), *given[cut + 1 :])
    sys.exit(main(given[:cut], command))
