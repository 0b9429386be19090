"""Empty on purpose: see README.md beside the original of this file (baselines/servers/sglang_standin)."""
