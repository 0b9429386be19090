"""Tokens per second of a server that preempts nothing, in turns with the others."""

from collections.abc import Mapping

from bench.vllm_plugin.asking import ask
from bench.vllm_plugin.servers import Server


async def in_turns(servers: Mapping[str, Server], prompt: int, output: int, pairs: int) -> dict[str, list[float]]:
    """Tokens per second by server: of the prompt where one token is asked for, else of the output.

    Servers take turns, another one begins each round; the first round warms up and is not counted.
    """
    found: dict[str, list[float]] = {name: [] for name in servers}
    names = list(servers)
    for number in range(pairs + 1):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            took = await ask(servers[name], prompt, output=output)
            if number > 0:
                found[name].append((prompt if output == 1 else output) / took.seconds)
    return found
