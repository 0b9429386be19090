"""The open-loop load generator."""
