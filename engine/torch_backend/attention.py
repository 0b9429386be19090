"""Causal attention of new token rows over the keys and values of one sequence."""

import math

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

MASKED_ROWS = 64
"""On a CPU a continuation of fewer rows is faster with a mask, of more rows as two parts that are merged."""

BLOCKS_FROM_ROWS = 256
BLOCK_ROWS = 64
"""From so many rows on, float32 attention on a CPU goes by blocks of rows. torch's kernel computes whole blocks of 512
keys, however little of them a row may see: 512 tokens take 20 % less time so, 4096 tokens 2 % less."""

NEAR_POSITIONS = 1024
"""Keys a block of rows meets at once: its scores stay in a core's cache. Those before come as a second part."""


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Attention of the last `rows` positions of a sequence to all positions up to their own.

    queries: [rows, heads, head_dim]; keys, values: [positions, kv_heads, head_dim] with positions >= rows,
    which may be strided. Returns [rows, heads, head_dim].
    """
    if queries.device.type == "cuda":
        return attend_cuda(queries, keys, values)
    return attend_cpu(queries, keys, values)


def attend_cpu(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`attend`, by the fastest of five ways on a CPU."""
    rows, heads, head_dim = queries.shape
    positions, kv_heads, _ = keys.shape
    group = heads // kv_heads
    k, v = keys.permute(1, 0, 2).unsqueeze(1), values.permute(1, 0, 2).unsqueeze(1)
    if rows == 1:
        return scaled_dot_product_attention(queries.view(kv_heads, 1, group, head_dim), k, v).reshape(queries.shape)
    if rows >= BLOCKS_FROM_ROWS and queries.dtype is torch.float32:
        return _attend_in_blocks(queries, keys, values)
    # The key heads become the batch and their query heads share them by a stride of 0: nothing is copied.
    q = queries.view(rows, kv_heads, group, head_dim).permute(1, 2, 0, 3)
    k, v = k.expand(-1, group, -1, -1), v.expand(-1, group, -1, -1)
    context = positions - rows
    if context == 0:
        attended = scaled_dot_product_attention(q, k, v, is_causal=True)
    elif rows < MASKED_ROWS:
        attended = scaled_dot_product_attention(q, k, v, attn_mask=_mask(rows, context, q.dtype))
    else:
        attended = _attend_in_two_parts(q, k, v, context)
    return attended.permute(2, 0, 1, 3).reshape(rows, heads, head_dim)


def _attend_in_blocks(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Rows in stretches of `NEAR_POSITIONS`: each attends to its own keys, or to all there are while these are few,
    and to the keys before by torch's kernel. The query heads of a key head are stacked, position by position."""
    rows, heads, head_dim = queries.shape
    positions, kv_heads, _ = keys.shape
    group, context = heads // kv_heads, positions - rows
    stacked = queries.new_empty(kv_heads, rows, group, head_dim)
    torch.mul(queries.view(rows, kv_heads, group, head_dim).transpose(0, 1), 1 / math.sqrt(head_dim), out=stacked)
    attended = torch.empty_like(stacked)
    k, v = keys.transpose(0, 1), values.transpose(0, 1)
    for first in range(0, rows, NEAR_POSITIONS):
        last = min(first + NEAR_POSITIONS, rows)
        before = 0 if context + last <= NEAR_POSITIONS else context + first
        q, out = (tensor[:, first:last].flatten(1, 2) for tensor in (stacked, attended))
        near = slice(before, context + last)
        log_sums = _attend_near(q, k[:, near], v[:, near], group, out, before > 0)
        if log_sums is not None:
            far, far_log_sums = _flash(q.unsqueeze(0), k[None, :, :before], v[None, :, :before], scale=1.0)
            out.lerp_(far[0], torch.sigmoid(far_log_sums.view_as(log_sums) - log_sums).unsqueeze(-1))
    return attended.transpose(0, 1).reshape(rows, heads, head_dim)


def _attend_near(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: int, out: torch.Tensor, want_log_sums: bool
) -> torch.Tensor | None:
    """Causal attention: a block of rows after the other, two products and a softmax for each key head.

    q, out: [kv_heads, rows x group, head_dim], the query already scaled; k, v: [kv_heads, positions, head_dim]. Returns
    the logarithms of the rows' exponential sums, [kv_heads, rows x group], if they are wanted.
    """
    kv_heads, stacked_rows, _ = q.shape
    positions = k.shape[1]
    step = BLOCK_ROWS * group
    triangle = torch.full((BLOCK_ROWS, BLOCK_ROWS), float("-inf")).triu_(1).repeat_interleave(group, 0)
    scores = torch.empty(step * positions)
    log_sums = torch.empty(kv_heads, stacked_rows) if want_log_sums else None
    for head in range(kv_heads):
        seen_keys, seen_values = k[head].t(), v[head]
        for low in range(0, stacked_rows, step):
            high = min(low + step, stacked_rows)
            seen, block = positions - (stacked_rows - high) // group, (high - low) // group
            weights = scores[: (high - low) * seen].view(high - low, seen)
            torch.mm(q[head, low:high], seen_keys[:, :seen], out=weights)
            weights[:, seen - block :].add_(triangle[: high - low, :block])
            if log_sums is None:
                torch.softmax(weights, 1, out=weights)
            else:
                # The largest score less the logarithm of its weight: softmax keeps its sums to itself.
                largest = weights.amax(1)
                torch.softmax(weights, 1, out=weights)
                torch.sub(largest, weights.amax(1).log_(), out=log_sums[head, low:high])
            torch.mm(weights, seen_values[:seen], out=out[head, low:high])
    return log_sums


def _flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """torch's kernel for CPUs, which also tells the logarithms of the exponential sums."""
    attended: tuple[torch.Tensor, torch.Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, causal, scale=scale
    )
    return attended


def _mask(rows: int, context: int, dtype: torch.dtype) -> torch.Tensor:
    """Added to the scores: 0 where row i may see position j (j <= context + i), minus infinity elsewhere."""
    mask = torch.zeros(rows, context + rows, dtype=dtype)
    mask[:, context:] = torch.full((rows, rows), float("-inf"), dtype=dtype).triu_(1)
    return mask


def _attend_in_two_parts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, context: int) -> torch.Tensor:
    """Full attention to the context and causal attention to the rows themselves, weighed by their exponential sums.

    q, k, v: [kv_heads, group, rows or positions, head_dim]; keys and values are the same throughout a group.
    """
    kv_heads, group, rows, head_dim = q.shape
    # Without a triangle the rows of a group's heads can be stacked: the kernel works in larger blocks.
    stacked = q.reshape(kv_heads, 1, group * rows, head_dim)
    before, before_log_sum = _flash(stacked, k[:, :1, :context], v[:, :1, :context])
    own, own_log_sum = _flash(q, k[:, :, context:], v[:, :, context:], causal=True)
    share_before = torch.sigmoid(before_log_sum.view(kv_heads, group, rows) - own_log_sum).unsqueeze(-1)
    return torch.lerp(own, before.view(q.shape), share_before.to(own.dtype))


def attend_cuda(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`attend`, by kernels that align the causal triangle with the last position themselves."""
    rows, positions = queries.shape[0], keys.shape[0]
    q, k, v = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (queries, keys, values))
    if rows == 1:
        attended = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    elif rows == positions:
        attended = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    else:
        attended = scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(rows, positions), enable_gqa=True)
    return attended.squeeze(0).transpose(0, 1)
