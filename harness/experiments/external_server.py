"""A server that runs already (`system=external`): its address and key, and one token from it before any point."""

import os
from typing import Any

import aiohttp

from engine.core.clock import NS_PER_S
from engine.core.slo import SLO
from harness.assembly.reading import SettingsError
from harness.assembly.settings import SystemSettings
from harness.loadgen.errors import ServerNotReadyError, ServerRefusesError
from harness.loadgen.settings import SLOStyle, Target
from harness.loadgen.warmup import wait_until_ready

DEADLINE_S = 30.0
ASK_WITHIN_S = 10.0
PATIENT = SLO(60 * NS_PER_S, 60 * NS_PER_S)
"""Stated with the first request: a server may refuse a field it does not know."""
NO_KEY = (401, 403)
NOT_FOUND = (404, 405)
BAD_REQUEST = (400, 422)


def external_target(system: SystemSettings, model: str) -> Target:
    """Where requests go. model: asked for where the system names none. Raises SettingsError."""
    key = None
    if system.api_key_env is not None:
        key = os.environ.get(system.api_key_env)
        if not key:
            raise SettingsError(f"system.api_key_env names {system.api_key_env}, which is not set")
    try:
        return Target(str(system.base_url), system.served_model or model, key, SLOStyle(system.slo_fields))
    except ValueError as error:
        raise SettingsError(f"system.base_url: {error}") from error


async def require_token(target: Target) -> None:
    """Return once it has given a token. Raises SettingsError, a sentence with the setting that may be wrong.

    Only a server that says it is busy is asked again.
    """
    try:
        await wait_until_ready(target, DEADLINE_S, prompt=range(16, 32), slo=PATIENT, runs_already=True)
    except ServerRefusesError as error:
        raise SettingsError(await _sentence(target, error)) from error
    except ServerNotReadyError as error:
        raise SettingsError(f"system.base_url: {error}") from error


async def _sentence(target: Target, error: ServerRefusesError) -> str:
    if error.answered_model is not None:
        return f"system.served_model: {error}"
    if error.http_status in NO_KEY:
        mistake = "it refuses the key" if target.api_key else "give the variable that holds its key"
        return f"system.api_key_env: {mistake} ({error})"
    if error.http_status in NOT_FOUND:
        return await _not_found(target, error)
    if error.http_status in BAD_REQUEST and target.slo_style is not SLOStyle.NONE:
        return f"{error}; if it is the SLO it does not take: system.slo_fields=none"
    return f"system.base_url: {error}"


async def _not_found(target: Target, error: ServerRefusesError) -> str:
    served = await _served_models(target)
    if served is None:
        return f"system.base_url: {target.base_url} has no list of models, and for {target.model!r} gave {error.reason}"
    if target.model not in served:
        return f"system.served_model: {target.base_url} serves {', '.join(map(repr, served))}, not {target.model!r}"
    return (
        f"system.base_url: {target.base_url} serves {target.model!r}, but not at /v1/completions ({error.reason}): "
        "a server of chats alone cannot be measured, since prompts are sent as token ids"
    )


async def _served_models(target: Target) -> list[str] | None:
    """Names in /v1/models; None where there is no such list."""
    headers = {} if target.api_key is None else {"Authorization": f"Bearer {target.api_key}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_WITHIN_S), headers=headers) as session,
            session.get(target.url("models"), allow_redirects=False) as response,
        ):
            body: Any = await response.json(content_type=None) if response.status == 200 else None
        return [str(entry["id"]) for entry in body["data"]]
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
        return None
