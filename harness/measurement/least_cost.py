"""The least device time a request can cost, whatever rides with it: what the clairvoyant bound charges for it.

Take a serial device on which a task of prompts n_1 ... n_k costs at least

    shared(n_1 + ... + n_k) + own(n_1) + ... + own(n_k)   seconds:

`shared` is paid by the rows together (launches, weights read once, projections), `own` by each prompt for itself
(attention; of a prompt run in chunks, the sum over its chunks). A task of several prompts, and a chunk, holds at most
B tokens; a longer prompt runs whole and alone.

Claim: no schedule spends less on a request of n tokens than

    p = own(n) + n x min of shared(S) / S over 1 <= S <= max(n, B).

Proof: split shared(S) of a task of S tokens over its members by their tokens. A request that has m of its n tokens in
a task pays m x shared(S) / S there, S at most max(n, B); over its tasks m adds up to n. So it pays at least p, and all
that is paid adds up to no more than the device's time. What a request pays is spent after its release and, if it is on
time, before its deadline: a task begins when all its members are there and ends for all of them at once. What is paid
for late requests is lost. Hence the requests on time, each with its payments, solve the linear programme of
`harness.measurement.bound`, in which each need only pay p.

With shared(S) = c + a S and own(n) = b n^2, c >= 0, shared(S) / S falls with S and p = a n + b n^2 + c min(1, n / B).
"""

from collections.abc import Callable, Sequence

Seconds = Callable[[int], float]
"""Tokens to seconds."""


class LeastCost:
    """Least seconds of a request by its tokens.

    shared, own: see above; `shared` is asked once for every total up to the greatest length needed.
    batch_tokens: B; where several systems are held against one bound, the greatest of theirs. None: no batching and
        no chunks, p = shared(n) + own(n).
    """

    def __init__(self, shared: Seconds, own: Seconds, batch_tokens: int | None = None) -> None:
        if batch_tokens is not None and batch_tokens < 1:
            raise ValueError(f"batch_tokens must be at least 1, got {batch_tokens}")
        self._shared, self._own, self._batch_tokens = shared, own, batch_tokens
        self._least_per_token: list[float] = []  # [i]: the minimum over totals 1 ... i + 1

    def seconds(self, tokens: int) -> float:
        """p of a request of so many tokens, at least 1."""
        _check(tokens)
        if self._batch_tokens is None:
            return self._shared(tokens) + self._own(tokens)
        return self._own(tokens) + tokens * self._per_token(max(tokens, self._batch_tokens))

    def _per_token(self, most: int) -> float:
        least = self._least_per_token
        while len(least) < most:
            total = len(least) + 1
            here = self._shared(total) / total
            least.append(min(here, least[-1]) if least else here)
        return least[most - 1]


def least_seconds(tokens: int, coefficients: Sequence[float], batch_tokens: int | None = None) -> float:
    """p on a device of polynomial cost, in seconds: c + sum over members of (a n + b n^2 + ...).

    coefficients: c, a, b ... (a quadratic has three, a cubic four); c at least 0. batch_tokens: as in `LeastCost`.
    """
    _check(tokens)
    if not coefficients or coefficients[0] < 0:
        raise ValueError(f"a cost needs a fixed part of at least 0 s, got coefficients {tuple(coefficients)}")
    share = 1.0 if batch_tokens is None else min(1.0, tokens / batch_tokens)
    own = 0.0
    for factor in reversed(coefficients[1:]):
        own = (own + factor) * tokens
    return coefficients[0] * share + own


def _check(tokens: int) -> None:
    if tokens < 1:
        raise ValueError(f"a request has at least 1 token, got {tokens}")
