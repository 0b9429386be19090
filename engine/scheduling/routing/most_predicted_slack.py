"""Worst fit: the instance on which the request would have the most slack, which spreads the load."""

import collections.abc as c

from engine.scheduling.routing.router import Candidate, Prompt, predicted_slack_ns


class MostPredictedSlack:
    """Ties go to the first instance."""

    def choose(self, candidates: c.Sequence[Candidate], prompt: Prompt, now_ns: int) -> int:
        """The loosest fit."""
        return min(candidates, key=lambda each: (-predicted_slack_ns(each, prompt, now_ns), each.index)).index
