"""The roofline of one operator: max(FLOPs / (efficiency x peak), bytes / bandwidth) + launch."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.model.granularity import Span
from engine.model.operators import PlannedOperator
from engine.model.shape import ModelShape
from engine.simulation.accelerators import Accelerator
from engine.simulation.devices.attention_blocks import spread_pairs
from engine.simulation.devices.rank_sizes import RankSizes

_TOKEN_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Product:
    """A matrix product over rows, with the norms and the like that are fused to it.

    weights: elements read once. row_elements: read and written for each row. summed: elements of a row that are summed
    over the ranks afterwards, 0 = none.
    """

    weights: int
    row_elements: int
    summed: int = 0


class OperatorTimes:
    """Prices the operators of one model on one rank of `tensor_parallel` accelerators.

    Matrix products compute rows in multiples of the accelerator's tile and read their weights once; attention computes
    its query-key pairs in blocks of that many rows (attention_blocks.py). Counted in the
    operator they are fused to: norms (qkv_proj, gate_up_proj, router, head), rotation and the writing of KV (qkv_proj),
    the activation (gate_up_proj, experts), the residual (o_proj, down_proj, experts). The sums over ranks follow o_proj
    and down_proj or experts: twice a layer, part of that operator.
    """

    def __init__(self, shape: ModelShape, accelerator: Accelerator, tensor_parallel: int, element_bytes: int) -> None:
        sizes = RankSizes.of(shape, tensor_parallel)
        self._experts, self._experts_per_token = shape.experts, shape.experts_per_token
        self._head_dim = shape.head_dim
        self._sizes, self._accelerator, self._element_bytes = sizes, accelerator, element_bytes
        self._products = _products(sizes, shape.experts)
        self._sum_s_per_byte = 2 * (tensor_parallel - 1) / tensor_parallel / accelerator.allreduce_bandwidth_bytes_s
        self._sum_latency_s = accelerator.allreduce_latency_s if tensor_parallel > 1 else 0.0
        self._projection_flops_s = accelerator.projection_efficiency * accelerator.peak_flops

    def seconds(self, operator: PlannedOperator) -> float:
        """What the operator takes, the sum over ranks included."""
        rows = operator.stop_row - operator.first_row
        if operator.kind == "attention":
            return self._attention(operator.spans) + self._accelerator.launch_s
        if operator.kind == "embedding":
            moved = rows * (_TOKEN_ID_BYTES + 2 * self._sizes.hidden * self._element_bytes)
            return moved / self._accelerator.bandwidth_bytes_s + self._accelerator.launch_s
        if operator.kind == "experts":
            return self._expert_products(rows) + self._accelerator.launch_s
        return self._product(self._products[operator.kind], rows) + self._accelerator.launch_s

    def _product(self, product: _Product, rows: int) -> float:
        computed = _rounded_up(rows, self._accelerator.tile_rows)
        compute_s = 2 * product.weights * computed / self._projection_flops_s
        moved = (product.weights + product.row_elements * rows) * self._element_bytes
        return max(compute_s, moved / self._accelerator.bandwidth_bytes_s) + self._summed(product.summed * rows)

    def _attention(self, spans: Sequence[Span]) -> float:
        """Causal: pairs that are masked cost nothing. Each span reads all keys and values up to its last row."""
        accelerator = self._accelerator
        queries = sum(stop - first for _, first, stop in spans)
        positions = sum(segment.context_tokens + stop for segment, _, stop in spans)
        heads = self._sizes.query // self._head_dim
        flops = 4 * self._head_dim * spread_pairs(spans, heads, accelerator.tile_rows, accelerator.compute_units)
        moved = 2 * (self._sizes.query * queries + self._sizes.key_value * positions) * self._element_bytes
        compute_s = flops / (accelerator.attention_efficiency * accelerator.peak_flops)
        return max(compute_s, moved / accelerator.bandwidth_bytes_s)

    def _expert_products(self, rows: int) -> float:
        """Tokens choose their experts evenly and independently: the expected number of distinct ones is read."""
        sizes, accelerator, chosen = self._sizes, self._accelerator, self._experts_per_token
        distinct = self._experts * (1 - (1 - chosen / self._experts) ** rows)
        expert_rows = _rounded_up(rows * chosen / distinct, accelerator.expert_tile_rows)
        weights = 3 * sizes.hidden * sizes.expert_middle
        flops = 2 * weights * distinct * expert_rows
        row_elements = chosen * (3 * sizes.hidden + 6 * sizes.expert_middle) + 2 * sizes.hidden
        moved = (weights * distinct + row_elements * rows) * self._element_bytes
        compute_s = flops / (accelerator.expert_efficiency * accelerator.peak_flops)
        return max(compute_s, moved / accelerator.bandwidth_bytes_s) + self._summed(sizes.hidden * rows)

    def _summed(self, elements: int) -> float:
        """A ring: every rank sends twice its share of what all others hold."""
        if not elements:
            return 0.0
        return self._sum_latency_s + elements * self._element_bytes * self._sum_s_per_byte


def _products(sizes: RankSizes, experts: int) -> dict[str, _Product]:
    hidden, query, key_value, middle = sizes.hidden, sizes.query, sizes.key_value, sizes.middle
    projected = query + 2 * key_value
    norm = 2 * hidden
    rotation, kv_writes = 2 * (query + key_value), 4 * key_value
    return {
        "qkv_proj": _Product(hidden * projected, norm + hidden + projected + rotation + kv_writes),
        "o_proj": _Product(query * hidden, query + 2 * hidden, summed=hidden),
        "gate_up_proj": _Product(2 * hidden * middle, norm + hidden + 5 * middle),
        "down_proj": _Product(middle * hidden, middle + 2 * hidden, summed=hidden),
        "router": _Product(hidden * experts, norm + hidden + experts),
        "head": _Product(hidden * sizes.vocabulary, norm + hidden + sizes.vocabulary),
    }


def _rounded_up(rows: float, tile: int) -> float:
    return -(-rows // tile) * tile
