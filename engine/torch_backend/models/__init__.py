"""Model architectures as operator programs, their shapes and weights."""
