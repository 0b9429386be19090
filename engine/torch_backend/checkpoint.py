"""Writes a model as a Hugging Face folder: python -m engine.torch_backend.checkpoint --out checkpoints/cpu_demo."""

import sys
from collections.abc import Sequence
from pathlib import Path

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 2 for a user's mistake."""
    from engine.model.catalogue import model_names

    parser = OneSentenceParser(
        prog="python -m engine.torch_backend.checkpoint",
        description=__doc__,
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write, for example checkpoints/cpu_demo")
    parser.add_argument("--model", default="cpu_demo", help=f"one of {', '.join(model_names())} (default cpu_demo)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default 0)")
    parser.add_argument("--no-weights", action="store_true", help="config and tokenizer alone")
    given = parser.parse_args(arguments)

    from engine.model.shape import ModelLoadError
    from engine.torch_backend.checkpoint_folder import write_checkpoint

    if given.model not in model_names():
        parser.error(f"--model: {given.model} is not one of {', '.join(model_names())}")
    if not 0 <= given.seed < 2**63:
        parser.error(f"--seed must be between 0 and {2**63 - 1}, got {given.seed}")
    try:
        write_checkpoint(given.model, given.out, given.seed, weights=not given.no_weights)
    except (ModelLoadError, OSError) as error:
        print(f"checkpoint: {error}", file=sys.stderr)
        return MISTAKE_STATUS
    print(f"wrote {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
