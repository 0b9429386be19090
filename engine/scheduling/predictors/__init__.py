"""TTFT predictors: what a piece of prefill work will take."""
