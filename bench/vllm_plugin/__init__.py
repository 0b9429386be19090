"""What the plugin for stock vLLM gives and costs on one core: see `python -m bench.vllm_plugin --help`."""
