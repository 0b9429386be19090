"""FlowPrefill inside an unmodified vLLM 0.32: deadline order over chunks, and preemption at operator boundaries."""
