"""One small model of each architecture, all of about the same size."""

FAMILIES = ["cpu_demo", "cpu_qwen2", "cpu_qwen3", "cpu_qwen3_moe"]
