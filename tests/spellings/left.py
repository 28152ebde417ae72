"""Legitimate spellings that qkv rewrite leaves as they are, and why. run.py holds them to it: their numbers must stay, and one that is fused
after all must leave this table. They count as legitimate spellings that are not right."""

LEFT = {
    "causal_buffer_bool_offset": "the buffer is sliced by M - N, which may count from the end: the sizes of the slice do not follow",
    "late_ones_column": "the sum of the weights is a column of the product with (v, 1)",
    "late_einsum": "exp(s) reaches the values through einsum's views before it is normalised",
    "einsum_late_normalised": "exp(s) reaches the values through einsum's views before it is normalised",
    "sum_softmax_keepdim": "weights keep a last axis of 1 through the softmax, and are multiplied and summed",
    "einsum_three_operands": "einsum of three operands multiplies the values by something before the sum",
    "sink_denominator": "exp(s) / (sum exp(s) + exp(sink)) without a softmax",
    "sink_off_by_one": "exp(s) / (1 + sum exp(s)) without a softmax",
}
