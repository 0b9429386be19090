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
    hidden, inner]. Rows are sorted by expert, so that an expert's weights are read once; the host never learns how many
    rows an expert has, so that it need not wait for a device. The sum has a fixed order: the same bits every time.
    """
    rows, per_token = chosen.shape
    experts = gate_up.shape[0]
    by_expert, order = torch.sort(chosen.flatten(), stable=True)
    ends = torch.searchsorted(by_expert, torch.arange(experts, device=chosen.device), right=True, out_int32=True)
    gathered = normed.index_select(0, order.div(per_token, rounding_mode="floor"))
    gate, up = grouped_mm(gathered, gate_up.transpose(1, 2), offs=ends).chunk(2, dim=1)
    made = grouped_mm(silu(gate).mul_(up), down.transpose(1, 2), offs=ends)
    in_place = torch.empty_like(made).index_copy_(0, order, made).view(rows, per_token, -1)
    return torch.bmm(weights.unsqueeze(1), in_place).squeeze(1)
