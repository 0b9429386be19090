"""`harness.experiments.run`, with limits for the client that a busy machine keeps: what it measures is VALID or not by
the server's doing alone.
"""

import sys
from functools import partial

from engine.core.command_line import run_command
from harness.experiments.run import main
from harness.measurement import verdict

if __name__ == "__main__":
    verdict.Thresholds = partial(  # type: ignore[assignment, misc]
        verdict.Thresholds, sender_lag_p99_ms=1e6, loop_lag_p99_ms=1e6, client_cpu_share=100.0, sent_share=0.0
    )
    sys.exit(run_command(main))
