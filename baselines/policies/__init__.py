"""Rival policies, run by the same scheduler and executor as FlowPrefill."""
