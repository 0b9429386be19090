"""Best fit: the instance on which the request would still be in time, with the least slack left.

So instances with more room keep it for requests that have less. Where the request would be late everywhere, the
instance on which it is the least late.
"""

import collections.abc as c

from engine.scheduling.routing.router import Candidate, Prompt, predicted_slack_ns


class LeastPredictedSlack:
    """Ties go to the first instance."""

    def choose(self, candidates: c.Sequence[Candidate], prompt: Prompt, now_ns: int) -> int:
        """The tightest fit."""
        slacks = [(predicted_slack_ns(each, prompt, now_ns), each.index) for each in candidates]
        in_time = [found for found in slacks if found[0] >= 0]
        if in_time:
            return min(in_time)[1]
        return min(slacks, key=lambda found: (-found[0], found[1]))[1]
