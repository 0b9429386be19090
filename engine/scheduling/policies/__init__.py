"""Policies of the engine, one file each: which work is most urgent."""
