"""The edge: Hydra composition, runs, sweeps, provenance."""
