"""One file per public trace format: raw file -> Trace."""
