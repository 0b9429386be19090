"""Settings dataclasses, and the tables that turn names into objects. No Hydra."""
