"""Command lines are kept with every result: without what only their user may know."""

import re
from collections.abc import Sequence

HIDDEN = "***"
_NAME = r"(?:api[_-]?key|key|secret|password|passwd|token|credentials?|authorization)"
_GIVEN = re.compile(rf"(?i)((?:^|[\s,.\[{{'\"_-]){_NAME}\s*[=:]\s*)(?:(?:bearer|basic)\s+)?[^\s,\]}}'\"]+")
_FLAG_AND_VALUE = re.compile(rf"(?i)(--[\w-]*{_NAME}[\s,]+)[^\s,\]]+")
_FLAG = re.compile(rf"(?i)^--[\w-]*{_NAME}$")
_IN_URL = re.compile(r"(://)[^/@\s]+@")
_IN_QUERY = re.compile(r"(://[^\s?'\"]*\?)[^\s'\"]+")
_KEY_LIKE = re.compile(r"\b(?:sk-|hf_|ghp_|Bearer )[A-Za-z0-9_\-]{8,}")


def without_secrets(words: Sequence[str]) -> list[str]:
    """The words, each value that a name, a URL or its look tells to be a key or a password replaced."""
    found: list[str] = []
    for i, word in enumerate(words):
        found.append(HIDDEN if i and _FLAG.match(words[i - 1]) else _hidden(word))
    return found


def _hidden(word: str) -> str:
    for pattern in (_GIVEN, _FLAG_AND_VALUE):
        word = pattern.sub(rf"\1{HIDDEN}", word)
    word = _IN_QUERY.sub(rf"\1{HIDDEN}", _IN_URL.sub(rf"\1{HIDDEN}@", word))
    return _KEY_LIKE.sub(HIDDEN, word)
