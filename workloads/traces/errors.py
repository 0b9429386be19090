"""What a loader raises, and what it calls a row it cannot use."""


class TraceError(ValueError):
    """A trace that cannot be used as asked. One sentence that names the file (and line) or the setting."""


class BadRow(Exception):  # noqa: N818 - not a failure of the program: the loader decides what becomes of the row
    """One row that is not what its format promises. `sentence` says what is wrong with it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
