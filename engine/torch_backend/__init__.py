"""Real execution on torch, CPU or CUDA: a model as a program of named operators."""
