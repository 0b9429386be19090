"""The benchmark harness: load generation, measurement, assembly, experiments."""
