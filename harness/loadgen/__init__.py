"""Open-loop load generator: sends planned requests at their due instants and records what came back.

Start at `player.play`; `client` is one request, `reply` and `sse` read its stream, `pacing` waits for due instants.
"""
