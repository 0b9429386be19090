"""The self-contained FlowPrefill engine: nouns, scheduler, execution on torch, HTTP serving."""
