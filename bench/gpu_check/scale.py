"""What is checked at which size: all of it on a GPU, or the same parts at tiny shapes on a CPU."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of every part. Lengths are tokens as sent.

    dtype: of the large model. boundaries: random ones at which it is paused, at `pause_tokens`.
    profile_lengths: (new, context) of the profile. matmul: side of the square product that measures the device.
    blocking_tokens, pauses: prompt paused under each granularity, and how often. pauses_a_pass: of one prefill.
    tile_tokens: rows of a tile.
    bound_tokens, bounds_us, bound_pauses: the same for the launch bounds; None = no bound at all.
    systems: how many of the systems are compared. rates: multiples of the trace's own rate.
    arrivals_s: seconds of arrivals that all rates of a system have together.
    length_scale: tokens sent per trace token.
    """

    device: str
    model: str
    dtype: str
    judge_speed: bool
    pause_tokens: int
    boundaries: int
    profile_lengths: tuple[tuple[int, int], ...]
    profile_rounds: int
    matmul: int
    overhead_lengths: tuple[int, ...]
    compared_lengths: tuple[int, ...]
    pairs: int
    memory_lengths: tuple[int, ...]
    blocking_tokens: int
    pauses: int
    pauses_a_pass: int
    tile_tokens: int
    bound_tokens: int
    bounds_us: tuple[int | None, ...]
    bound_pauses: int
    systems: int
    rates: tuple[float, ...]
    arrivals_s: float
    length_scale: float
    kv_tokens: int
    vocab_tokens: int
    activation_bytes: int

    @property
    def longest(self) -> int:
        """Most tokens of a sequence that any part runs."""
        return max(new + context for new, context in self.profile_lengths)


@dataclass(frozen=True, slots=True)
class Setting:
    """What every part is given. out: where results go; scratch: for files nobody keeps.

    ends_at_s: instant of `time.monotonic` by which all must be over.
    """

    scale: Scale
    out: Path
    scratch: Path
    ends_at_s: float


GPU = Scale(
    device="cuda",
    model="llama3_8b",
    dtype="bfloat16",
    judge_speed=True,
    pause_tokens=2048,
    boundaries=50,
    profile_lengths=(
        *((64 << i, 0) for i in range(10)),
        *((384, 0), (768, 0), (1536, 0), (3072, 0), (6144, 0), (12288, 0), (24576, 0)),
        *((64, 4096), (512, 512), (512, 4096), (512, 15872), (2048, 6144), (4096, 12288)),
    ),
    profile_rounds=2,
    matmul=8192,
    overhead_lengths=(512, 2048, 8192),
    compared_lengths=(512, 1024, 2048, 4096, 8192),
    pairs=20,
    memory_lengths=(2048, 8192),
    blocking_tokens=8192,
    pauses=200,
    pauses_a_pass=10,
    tile_tokens=2048,
    bound_tokens=4096,
    bounds_us=(0, 100, 250, 500, 1000, 3000, None),
    bound_pauses=100,
    systems=4,
    rates=(0.75, 1.5, 3.0, 4.5),
    arrivals_s=25.0,
    length_scale=1.0,
    kv_tokens=131_072,
    vocab_tokens=128_000,
    activation_bytes=1 << 33,
)

TINY = Scale(
    device="cpu",
    model="cpu_tiny",
    dtype="float32",
    judge_speed=False,
    pause_tokens=64,
    boundaries=5,
    profile_lengths=((16, 0), (64, 0), (256, 0), (512, 0), (64, 256)),
    profile_rounds=1,
    matmul=128,
    overhead_lengths=(64,),
    compared_lengths=(64, 256),
    pairs=3,
    memory_lengths=(64, 512),
    blocking_tokens=512,
    pauses=6,
    pauses_a_pass=3,
    tile_tokens=128,
    bound_tokens=256,
    bounds_us=(0, 500),
    bound_pauses=3,
    systems=2,
    rates=(1.0,),
    arrivals_s=1.0,
    length_scale=1 / 32,
    kv_tokens=65_536,
    vocab_tokens=256,
    activation_bytes=1 << 28,
)
