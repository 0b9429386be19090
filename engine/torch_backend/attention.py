"""Causal attention of new token rows over the keys and values of one sequence."""

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

MASKED_ROWS = 64
"""On a CPU a continuation of fewer rows is faster with a mask, of more rows as two parts that are merged."""


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Attention of the last `rows` positions of a sequence to all positions up to their own.

    queries: [rows, heads, head_dim]; keys, values: [positions, kv_heads, head_dim] with positions >= rows,
    which may be strided. Returns [rows, heads, head_dim].
    """
    if queries.device.type == "cuda":
        return attend_cuda(queries, keys, values)
    return attend_cpu(queries, keys, values)


def attend_cpu(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`attend`, by the fastest of four ways on a CPU."""
    rows, heads, head_dim = queries.shape
    positions, kv_heads, _ = keys.shape
    group = heads // kv_heads
    k, v = keys.permute(1, 0, 2).unsqueeze(1), values.permute(1, 0, 2).unsqueeze(1)
    if rows == 1:
        return scaled_dot_product_attention(queries.view(kv_heads, 1, group, head_dim), k, v).reshape(queries.shape)
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


def _mask(rows: int, context: int, dtype: torch.dtype) -> torch.Tensor:
    """Added to the scores: 0 where row i may see position j (j <= context + i), minus infinity elsewhere."""
    mask = torch.zeros(rows, context + rows, dtype=dtype)
    mask[:, context:] = torch.full((rows, rows), float("-inf"), dtype=dtype).triu_(1)
    return mask


def _attend_in_two_parts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, context: int) -> torch.Tensor:
    """Full attention to the context and causal attention to the rows themselves, weighed by their exponential sums.

    q, k, v: [kv_heads, group, rows or positions, head_dim]; keys and values are the same throughout a group.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    kv_heads, group, rows, head_dim = q.shape
    # Without a triangle the rows of a group's heads can be stacked: the kernel works in larger blocks.
    stacked = q.reshape(kv_heads, 1, group * rows, head_dim)
    before, before_log_sum = flash(stacked, k[:, :1, :context], v[:, :1, :context], 0.0, False)
    own, own_log_sum = flash(q, k[:, :, context:], v[:, :, context:], 0.0, True)
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
