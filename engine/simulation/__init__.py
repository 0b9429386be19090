"""The scheduler of the engine in a simulated world: virtual clock, event heap, executor, device models."""
