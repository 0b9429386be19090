"""The nouns every package shares. Standard library only; imports nothing else of this project."""
