"""The command: python -m engine.torch_backend.profile --model cpu_demo --out FILE. See profiling.py for the file."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 2 for a user's mistake."""
    parser = OneSentenceParser(
        prog="python -m engine.torch_backend.profile",
        description=__doc__,
    )
    parser.add_argument("--model", default="cpu_demo", help="model name or Hugging Face folder (weights are random)")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--max-tokens", type=int, default=5120, help="longest prompt and context (default 5120)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16 (default: what the model's config names)")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="ranks the model is split over (default 1)")
    parser.add_argument("--first-cpu", type=int, help="pin rank r to CPU first + r (default: nothing is pinned)")
    parser.add_argument("--rounds", type=int, default=3, help="times everything is measured (default 3)")
    given = parser.parse_args(arguments)

    for option in ("max_tokens", "threads", "rounds", "tensor_parallel"):
        if getattr(given, option) < 1:
            parser.error(f"--{option.replace('_', '-')} must be at least 1")
    if given.first_cpu is not None:
        try:
            os.sched_setaffinity(0, {given.first_cpu})
        except OSError:
            parser.error(f"--first-cpu: CPU {given.first_cpu} is not available")

    # Here, not at the top: torch starts threads at import, after this process was pinned.
    from engine.model.shape import ModelLoadError
    from engine.torch_backend.profiling import profile
    from engine.torch_backend.rank_messages import ModelChoice

    choice = ModelChoice(given.model, given.device, given.dtype, dummy=True, seed=0)
    try:
        content = profile(choice, given.max_tokens, given.threads, given.rounds, given.tensor_parallel, given.first_cpu)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        partial = given.out.with_name(f".{given.out.name}.{os.getpid()}")
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        partial.replace(given.out)
    except (ModelLoadError, OSError) as error:
        print(f"profile: {error}", file=sys.stderr)
        return MISTAKE_STATUS
    print(f"wrote {given.out}: {len(content['prefill'])} prefills, {len(content['operators'])} operator times")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
