"""Servers the harness starts as child processes; never imported into it."""
