"""A layer of experts: each row is computed by the few that its router chose."""

import torch
from torch.nn.functional import grouped_mm, silu


def route(
    normed: torch.Tensor, router: torch.Tensor, per_token: int, normalized: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which experts compute each row, and with what weight: two tensors [rows, per_token], weights in float32.

    normed: [rows, hidden]. router: [experts, hidden]. normalized: a row's weights add up to 1.
    """
    shares = torch.softmax(torch.mm(normed, router.t()), dim=-1, dtype=torch.float32)
    weights, chosen = torch.topk(shares, per_token, dim=-1)
    if normalized:
        weights /= weights.sum(dim=-1, keepdim=True)
    return weights, chosen


def run_experts(
    normed: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """The weighed sum of what each row's experts make of it: [rows, hidden].

    normed: [rows, hidden]. weights, chosen: [rows, per_token]. gate_up: [experts, 2 x inner, hidden]. down: [experts,
    hidden, inner]. Rows are sorted by expert, so that an expert's weights are read once. The sum has a fixed order: the
    same bits every time.
    """
    rows, per_token = chosen.shape
    by_expert, order = torch.sort(chosen.flatten(), stable=True)
    each = torch.arange(gate_up.shape[0], device=chosen.device)
    ends = torch.searchsorted(by_expert, each, right=True, out_int32=True)
    source_rows = order.div(per_token, rounding_mode="floor")
    multiply = multiply_together if normed.device.type == "cuda" else multiply_one_by_one
    made = multiply(normed, source_rows, ends, gate_up, down)
    in_place = torch.empty_like(made).index_copy_(0, order, made).view(rows, per_token, -1)
    return torch.bmm(weights.unsqueeze(1), in_place).squeeze(1)


def multiply_together(
    normed: torch.Tensor, source_rows: torch.Tensor, ends: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """Each expert's MLP on its rows, for a GPU: the host never learns how many rows an expert has, so it does not wait.

    source_rows: rows of `normed`, sorted by expert. ends: [experts], where each expert's rows end. Returns their
    outputs in the same order: [rows of all experts, hidden].
    """
    gathered = normed.index_select(0, source_rows)
    gate, up = grouped_mm(gathered, gate_up.transpose(1, 2), offs=ends).chunk(2, dim=1)
    return grouped_mm(silu(gate).mul_(up), down.transpose(1, 2), offs=ends)


def multiply_one_by_one(
    normed: torch.Tensor, source_rows: torch.Tensor, ends: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """As `multiply_together`, for a CPU: one expert after the other, its temporaries stay in the caches."""
    made = normed.new_empty(source_rows.shape[0], down.shape[1])
    start = 0
    for expert, stop in enumerate(ends.tolist()):
        if stop > start:
            gathered = normed.index_select(0, source_rows[start:stop])
            gate, up = torch.mm(gathered, gate_up[expert].t()).chunk(2, dim=1)
            torch.mm(silu(gate, inplace=True).mul_(up), down[expert].t(), out=made[start:stop])
            start = stop
    return made
