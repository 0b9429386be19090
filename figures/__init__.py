"""Figures drawn from committed results, one file each."""
