"""The plugin is a package of its own: found here where it is not installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integrations" / "vllm_flowprefill"))
