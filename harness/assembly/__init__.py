"""Settings and the objects made from them. Plain Python: commands without Hydra use it too."""
