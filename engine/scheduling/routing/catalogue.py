"""The names of routing policies. A new one is one file and one line here."""

from collections.abc import Callable, Mapping
from typing import Final

from engine.scheduling.routing.least_predicted_slack import LeastPredictedSlack
from engine.scheduling.routing.most_predicted_slack import MostPredictedSlack
from engine.scheduling.routing.round_robin import RoundRobin
from engine.scheduling.routing.router import Router

ROUTERS: Final[Mapping[str, Callable[[], Router]]] = {
    "round_robin": RoundRobin,
    "least_predicted_slack": LeastPredictedSlack,
    "most_predicted_slack": MostPredictedSlack,
}
