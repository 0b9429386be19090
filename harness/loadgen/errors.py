"""What the load generator refuses, each with a sentence for its user."""


class LoadRefusedError(Exception):
    """The run cannot be started as asked."""


class OpenFilesLimitError(LoadRefusedError):
    """The process may not open as many connections as the run can need."""


class ServerNotReadyError(LoadRefusedError):
    """No token came from the expected model before the deadline."""
