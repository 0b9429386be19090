"""The shape of a decoder, read from a Hugging Face `config.json`."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LLAMA, QWEN2, QWEN3, QWEN3_MOE = ARCHITECTURES = (
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
)


class ModelLoadError(Exception):
    """A model cannot be loaded; the message is one sentence naming what is wrong and where."""


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3.1's frequency scaling for long contexts (HF rope_type "llama3")."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder. dtype: the name its config gives ("float32", "bfloat16", ...).

    eos_token_ids: any of them ends a generation; may be empty.
    qkv_bias: the q, k and v projections add a bias.
    experts: how many a layer's MLP chooses from, 0 = a dense MLP of intermediate_size. experts_per_token: how many
    compute each token. moe_intermediate_size: inner size of one expert. Every layer has the same layout.
    normalized_experts: the weights of a token's experts add up to 1.
    architecture: the config's class name.
    """

    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_positions: int
    tied_embeddings: bool
    eos_token_ids: tuple[int, ...]
    dtype: str
    qkv_bias: bool = False
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    architecture: str = LLAMA
    normalized_experts: bool = False

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normed head by head."""
        return self.architecture in (QWEN3, QWEN3_MOE)


@dataclass(frozen=True, slots=True)
class _Experts:
    experts: int = 0
    per_token: int = 0
    intermediate_size: int = 0
    normalized: bool = False


def read_shape(folder: Path, name: str | None = None) -> ModelShape:
    """The shape in `folder/config.json`; end-of-text ids also from `generation_config.json` where there is one.

    Raises ModelLoadError when the file is missing, unreadable, or describes a model whose operators are not known.
    """
    path = folder / "config.json"
    config = _read_json(path)
    architecture = _architecture(config, path)
    _refuse_unsupported(config, architecture, path)
    heads = _integer(config, "num_attention_heads", path)
    hidden = _integer(config, "hidden_size", path)
    # The Qwen classes fill what is left out with fixed numbers that hardly ever fit the rest: there it must be said.
    llama = architecture == LLAMA
    kv_heads = _integer(config, "num_key_value_heads", path, default=heads if llama else None)
    if heads % kv_heads:
        raise ModelLoadError(f"{path}: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    head_dim = _integer(config, "head_dim", path, default=hidden // heads if llama or architecture == QWEN2 else None)
    if head_dim % 2:
        raise ModelLoadError(f"{path}: head_dim {head_dim} is odd, rotary embedding needs an even one")
    rope = _object(config, "rope_parameters", path)
    mixture = _experts(config, path) if architecture == QWEN3_MOE else _Experts()
    return ModelShape(
        name=name or folder.resolve().name,
        vocab_size=_integer(config, "vocab_size", path),
        hidden_size=hidden,
        intermediate_size=_integer(config, "intermediate_size", path),
        layers=_integer(config, "num_hidden_layers", path),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=_number(config, "rms_norm_eps", path, default=1e-6),
        rope_theta=_number(rope if "rope_theta" in rope else config, "rope_theta", path, default=10000.0),
        rope_scaling=_rope_scaling(rope or _object(config, "rope_scaling", path), path),
        max_positions=_integer(config, "max_position_embeddings", path, default=2048 if llama else None),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        eos_token_ids=_eos_token_ids(config, folder),
        dtype=str(config.get("torch_dtype") or config.get("dtype") or "float32"),
        qkv_bias=architecture == QWEN2,  # whatever attention_bias says: the class does not read it
        experts=mixture.experts,
        experts_per_token=mixture.per_token,
        moe_intermediate_size=mixture.intermediate_size,
        architecture=architecture,
        normalized_experts=mixture.normalized,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot read the model's configuration ({error.strerror})") from error
    except ValueError as error:
        raise ModelLoadError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path}: a JSON object is expected")
    return content


def _architecture(config: dict[str, Any], path: Path) -> str:
    given = _list(config, "architectures", path) or ["none named"]
    for known in ARCHITECTURES:
        if known in given:
            return known
    named, known_names = ", ".join(map(str, given)), ", ".join(ARCHITECTURES)
    raise ModelLoadError(f"{path}: architecture {named} is not known, only {known_names} are")


def _refuse_unsupported(config: dict[str, Any], architecture: str, path: Path) -> None:
    # Qwen2 has a bias in q, k and v alone; the others would have one in the output projection too.
    for key in ("mlp_bias",) if architecture == QWEN2 else ("attention_bias", "mlp_bias"):
        if config.get(key):
            raise ModelLoadError(f"{path}: {key} is set, and projections with a bias are not supported")
    windowed = any(kind != "full_attention" for kind in _list(config, "layer_types", path))
    if config.get("use_sliding_window") or windowed:
        raise ModelLoadError(f"{path}: attention over a sliding window is not supported, only full attention is")
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelLoadError(f"{path}: hidden_act {activation} is not supported, only silu is")
    if config.get("quantization_config"):
        raise ModelLoadError(f"{path}: quantized weights (quantization_config) are not supported")


def _experts(config: dict[str, Any], path: Path) -> _Experts:
    """The mixture of experts, which every layer must have."""
    for key, uniform in (("mlp_only_layers", []), ("decoder_sparse_step", 1)):
        value = config.get(key, uniform)
        if value not in (uniform, None):
            raise ModelLoadError(f"{path}: {key} {value} mixes dense and expert layers, which is not supported")
    # Newer versions of the library write num_local_experts.
    key = "num_experts" if "num_experts" in config else "num_local_experts"
    experts = _integer(config, key if key in config else "num_experts", path)
    per_token = _integer(config, "num_experts_per_tok", path)
    if per_token > experts:
        raise ModelLoadError(f"{path}: num_experts_per_tok {per_token} is more than the {experts} experts of a layer")
    normalized = bool(config.get("norm_topk_prob", False))
    return _Experts(experts, per_token, _integer(config, "moe_intermediate_size", path), normalized)


def _integer(config: dict[str, Any], key: str, path: Path, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise ModelLoadError(f"{path}: {key} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelLoadError(f"{path}: {key} must be a whole number above 0, got {value!r}")
    return value


def _number(given: dict[str, Any], key: str, path: Path, default: float | None = None) -> float:
    value = given.get(key)
    if value is None:
        value = default
    if value is None:
        raise ModelLoadError(f"{path}: {key} is missing")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ModelLoadError(f"{path}: {key} must be a number above 0, got {value!r}")
    return float(value)


def _object(config: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = config.get(key)
    if value is not None and not isinstance(value, dict):
        raise ModelLoadError(f"{path}: {key} must be an object, got {value!r}")
    return value or {}


def _list(config: dict[str, Any], key: str, path: Path) -> list[Any]:
    value = config.get(key)
    if value is not None and not isinstance(value, list):
        raise ModelLoadError(f"{path}: {key} must be a list, got {value!r}")
    return value or []


def _rope_scaling(given: dict[str, Any], path: Path) -> RopeScaling | None:
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ModelLoadError(f"{path}: rope scaling of type {kind} is not supported, only default and llama3 are")
    keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    for key in keys:
        if given.get(key) is None:
            raise ModelLoadError(f"{path}: rope scaling of type llama3 lacks {key}")
    factor, low, high, positions = (_number(given, key, path) for key in keys)
    if low >= high:
        raise ModelLoadError(f"{path}: low_freq_factor {low:g} must be below high_freq_factor {high:g}")
    return RopeScaling(factor, low, high, int(positions))


def _eos_token_ids(config: dict[str, Any], folder: Path) -> tuple[int, ...]:
    path, given = folder / "config.json", config.get("eos_token_id")
    generation = folder / "generation_config.json"
    if generation.is_file():
        path, given = generation, _read_json(generation).get("eos_token_id", given)
    tokens = given if isinstance(given, list) else [] if given is None else [given]
    for token in tokens:
        if not isinstance(token, int) or isinstance(token, bool):
            raise ModelLoadError(f"{path}: eos_token_id must be whole numbers, got {token!r}")
    return tuple(tokens)
