"""What the load generator refuses, each with a sentence for its user."""


class LoadRefusedError(Exception):
    """The run cannot be started as asked."""


class OpenFilesLimitError(LoadRefusedError):
    """The process may not open as many connections as the run can need. most: as many as it may."""

    def __init__(self, sentence: str, most: int = 0) -> None:
        super().__init__(sentence)
        self.most = most


class ServerNotReadyError(LoadRefusedError):
    """No token came from the expected model before the deadline."""


class ServerRefusesError(ServerNotReadyError):
    """A server that runs already did not give the token, and waiting will not change that.

    reason: of the answer, or why there was none. http_status: of an answer that was an error. answered_model: the other
    model that did give a token.
    """

    def __init__(
        self, sentence: str, reason: str = "", http_status: int | None = None, answered_model: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.http_status = http_status
        self.answered_model = answered_model
