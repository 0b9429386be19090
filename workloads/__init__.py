"""Traces, synthetic workloads, SLOs and prompts: everything decided before a run starts."""
