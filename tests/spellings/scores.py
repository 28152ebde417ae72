"""How the scores are made and scaled: softmax(c * Q K^T) V, c a number, a tensor, on q, on k, on both,
before and after."""
from spell import *

# ------------------------------------------------------------------ plain, and the scale on the scores
S("scale_none", lambda q, k, v: soft(q @ k.transpose(-2, -1)) @ v, q=add("bhnd", 0.5))
S("scale_div_number", lambda q, k, v: soft(q @ k.transpose(-2, -1) / 2.5) @ v)
S("scale_div_sqrt_d", lambda q, k, v: soft(torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1))) @ v)
S("scale_mul_number", lambda q, k, v: soft(torch.matmul(q, k.transpose(2, 3)) * 0.4) @ v)
S("scale_mul_left", lambda q, k, v: soft(0.4 * (q @ k.mT)) @ v)
S("scale_mul_pow", lambda q, k, v: soft(q @ k.mT * q.shape[-1] ** -0.5) @ v)
S("scale_root_of_keys", lambda q, k, v: soft(q @ k.mT * k.shape[2] ** -0.5) @ v)
S("scale_div_root_of_queries", lambda q, k, v: soft(q @ k.mT / q.shape[2] ** 0.5) @ v)
S("scale_q_root_of_keys", lambda q, k, v: soft((q * k.shape[2] ** -0.5) @ k.mT) @ v)
S("scale_torch_mul", lambda q, k, v: soft(torch.mul(q @ k.mT, 0.4)) @ v)
S("scale_torch_div", lambda q, k, v: torch.matmul(soft(torch.div(torch.matmul(q, k.mT), 2.5)), v)
  )
S("scale_true_divide", lambda q, k, v: soft((q @ k.mT).true_divide(2.5)) @ v)
S("scale_method_chain", lambda q, k, v: q.matmul(k.transpose(-1, -2)).mul(0.4).softmax(-1).matmul(v))
S("scale_integer", lambda q, k, v: soft(q @ k.mT / 3) @ v)
S("scale_one", lambda q, k, v: soft(q @ k.mT * 1.0) @ v, q=add("bhnd", 0.5))
S("scale_above_one", lambda q, k, v: soft(q @ k.mT * 2.0) @ v, q=add("bhnd", 0.3))


def _in_place_mul(q, k, v):
    s = q @ k.mT
    s *= 0.4
    return soft(s) @ v


def _in_place_div(q, k, v):
    s = q @ k.mT
    s.div_(2.5)
    return soft(s) @ v


def _in_place_q(q, k, v):
    q = q.clone()
    q.mul_(0.4)
    return soft(q @ k.mT) @ v


S("scale_in_place_mul", _in_place_mul)
S("scale_in_place_div", _in_place_div)
S("scale_in_place_q", _in_place_q)

# ------------------------------------------------------------------ on the operands
S("scale_q_mul", lambda q, k, v: soft((q * 0.4) @ k.mT) @ v)
S("scale_q_div", lambda q, k, v: soft((q / 2.5) @ k.mT) @ v)
S("scale_q_left", lambda q, k, v: soft((0.4 * q) @ k.mT) @ v)
S("scale_k_mul", lambda q, k, v: soft(q @ (k * 0.4).mT) @ v)
S("scale_k_div", lambda q, k, v: soft(q @ (k / 2.5).mT) @ v)
S("scale_k_transposed_mul", lambda q, k, v: soft(q @ (k.mT * 0.4)) @ v)
S("scale_k_transposed_div", lambda q, k, v: soft(q @ (k.mT / 2.5)) @ v)
S("scale_both_quarter", lambda q, k, v: soft((q * 8 ** -0.25) @ (k * 8 ** -0.25).mT) @ v)
S("scale_both_quarter_div", lambda q, k, v: soft((q / 8 ** 0.25) @ (k / 8 ** 0.25).mT) @ v)
S("scale_both_transposed", lambda q, k, v: soft((q * 8 ** -0.25) @ (k.mT * 8 ** -0.25)) @ v)
S("scale_both_sqrt", lambda q, k, v: soft((q * math.sqrt(0.4)) @ (k * math.sqrt(0.4)).mT) @ v)
S("scale_both_unequal", lambda q, k, v: soft((q * 0.8) @ (k / 2.0).mT) @ v)
S("scale_q_and_scores", lambda q, k, v: soft((q * 0.8) @ k.mT / 2.0) @ v)
S("scale_k_and_scores", lambda q, k, v: soft(q @ (k * 0.8).mT * 0.5) @ v)
S("scale_three_times", lambda q, k, v: soft((q * 0.9) @ (k / 1.5).mT * 0.6) @ v)
S("scale_mul_then_div", lambda q, k, v: soft(q @ k.mT * 1.6 / 4.0) @ v)
S("scale_mul_then_mul", lambda q, k, v: soft(q @ k.mT * 0.8 * 0.5) @ v)
S("scale_q_before_transpose", lambda q, k, v: soft((q * 0.4).transpose(1, 2) @ k.permute(0, 2, 3, 1)) @ v.transpose(1,
    2), q=add("bnhd"), k=add("bmhd"), v=add("bmhe"))
S("scale_v", lambda q, k, v: soft(q @ k.mT * 0.4) @ (v * 1.7), note="the scale of v stays where it is")
S("scale_output", lambda q, k, v: soft(q @ k.mT * 0.4) @ v * 1.7)

# ------------------------------------------------------------------ as a tensor
S("scale_tensor_0d_mul", lambda q, k, v: soft(q @ k.mT * torch.tensor(0.4)) @ v)
S("scale_tensor_0d_div", lambda q, k, v: soft(q @ k.mT / torch.tensor(2.5)) @ v)
S("scale_tensor_0d_left", lambda q, k, v: soft(torch.tensor(0.4) * (q @ k.mT)) @ v)
S("scale_tensor_integer", lambda q, k, v: soft(q @ k.mT / torch.tensor(3)) @ v)
S("scale_tensor_f64", lambda q, k, v: soft(q @ k.mT * torch.tensor(0.4, dtype=torch.float64)) @ v)
S("scale_tensor_on_q", lambda q, k, v: soft((q * torch.tensor(0.4)) @ k.mT) @ v)
S("scale_tensor_on_k", lambda q, k, v: soft(q @ (k / torch.tensor(2.5)).mT) @ v)
S("scale_full_0d", lambda q, k, v: soft(q @ k.mT / torch.full([], 2.5)) @ v, note="GPT-2's")
S("scale_full_typed",
  lambda q, k, v: soft((q @ k.mT) / torch.full([], v.size(-1) ** 0.5, dtype=q.dtype, device=q.device)) @ v)
S("scale_buffer_0d", lambda self, q, k, v: soft(q @ k.mT * self.scale) @ v, parts=dict(scale=lambda: torch.tensor(0.4)))
S("scale_buffer_0d_div", lambda self, q, k, v: soft(q @ k.mT / self.scale) @ v,
  parts=dict(scale=lambda: torch.tensor(2.5)))
S("scale_buffer_1", lambda self, q, k, v: soft(q @ k.mT * self.scale) @ v,
  parts=dict(scale=lambda: torch.tensor([0.4])))
S("scale_buffer_1_div", lambda self, q, k, v: soft(q @ k.mT / self.scale) @ v,
  parts=dict(scale=lambda: torch.tensor([2.5])))
S("scale_buffer_1111", lambda self, q, k, v: soft(q @ k.mT * self.scale) @ v,
  parts=dict(scale=lambda: torch.full((1, 1, 1, 1), 0.4)))
S("scale_buffer_on_q", lambda self, q, k, v: soft((q * self.scale) @ k.mT) @ v,
  parts=dict(scale=lambda: torch.tensor([0.4])))
S("scale_buffer_on_k", lambda self, q, k, v: soft(q @ (k / self.scale).mT) @ v,
  parts=dict(scale=lambda: torch.tensor([[2.5]])))
S("scale_buffer_both", lambda self, q, k, v: soft((q * self.scale) @ (k * self.scale).mT) @ v,
  parts=dict(scale=lambda: torch.tensor(0.63)))
S("scale_parameter_0d", lambda self, q, k, v: soft(q @ k.mT * self.scale) @ v,
  parts=dict(scale=lambda: nn.Parameter(torch.tensor(0.4))), note="a learned temperature")
S("scale_parameter_exp", lambda self, q, k, v: soft(q @ k.mT * self.scale.exp()) @ v,
  parts=dict(scale=lambda: nn.Parameter(torch.tensor(-0.9))))
S("scale_parameter_softplus", lambda self, q, k, v: soft(q @ k.mT * F.softplus(self.scale)) @ v,
  parts=dict(scale=lambda: nn.Parameter(torch.tensor([-0.7]))))
S("scale_parameter_clamp", lambda self, q, k, v: soft(q @ k.mT * self.scale.clamp(max=0.4)) @ v,
  parts=dict(scale=lambda: nn.Parameter(torch.tensor(0.9))))
S("scale_sqrt_tensor", lambda q, k, v: soft(q @ k.mT / torch.sqrt(torch.tensor(8))) @ v)
S("scale_sqrt_tensor_float", lambda q, k, v: soft(q @ k.mT / torch.sqrt(torch.tensor(8.0))) @ v)
S("scale_sqrt_tensor_shape",
  lambda q, k, v: soft(q @ k.mT / torch.sqrt(torch.tensor(k.shape[-1], dtype=torch.float32))) @ v)
S("scale_sqrt_tensor_to", lambda q, k, v: soft(q @ k.mT / torch.sqrt(torch.tensor(k.shape[-1])).to(q.dtype)) @ v)
S("scale_sqrt_tensor_1", lambda q, k, v: soft(q @ k.mT / torch.sqrt(torch.FloatTensor([8]))) @ v)
S("scale_sqrt_on_q", lambda q, k, v: soft((q / torch.sqrt(torch.tensor(8.0))) @ k.mT) @ v)
S("scale_sqrt_sqrt",
  lambda q, k, v: (lambda s: soft((q / s) @ (k / s).mT) @ v)(torch.sqrt(torch.sqrt(torch.tensor(8.0)))))
S("scale_sqrt_of_sqrt_number", lambda q, k, v: (lambda s: soft((q * s) @ (k.mT * s)) @ v)(1 / math.sqrt(math.sqrt(8))))
S("scale_rsqrt_tensor", lambda q, k, v: soft(q @ k.mT * torch.rsqrt(torch.tensor(8.0))) @ v)
S("scale_pow_tensor", lambda q, k, v: soft(q @ k.mT * torch.tensor(8.0) ** -0.5) @ v)
S("scale_one_over_sqrt", lambda q, k, v: soft(q @ k.mT * (1 / torch.sqrt(torch.tensor(8.0)))) @ v)
S("scale_reciprocal", lambda q, k, v: soft(q @ k.mT * torch.tensor(2.5).reciprocal()) @ v)
S("scale_tensor_product", lambda q, k, v: soft(q @ k.mT * (torch.tensor(0.8) * 0.5)) @ v)
S("scale_ones_like", lambda q, k, v: soft(q @ k.mT / torch.full_like(q[:1, :1, :1, :1], 2.5)) @ v)
S("scale_layer_index", lambda q, k, v: soft(q @ k.mT / math.sqrt(8) / float(2 + 1)) @ v,
  note="GPT-2's scale_attn_by_inverse_layer_idx")
S("scale_unscaled_again", lambda q, k, v: soft((q / 8 @ k.mT) * 3.2) @ v, note="Megatron's layer number")

# ------------------------------------------------------------------ half precision
for _dt, _n in ((torch.float16, "f16"), (torch.bfloat16, "bf16"), (torch.float64, "f64")):
    S(f"dtype_{_n}", lambda q, k, v: soft(q @ k.mT * 0.4) @ v, dtype=_dt)
    S(f"dtype_{_n}_scale_q", lambda q, k, v: soft((q * C) @ k.mT) @ v, dtype=_dt)
    S(f"dtype_{_n}_mask", lambda q, k, v, keep: soft((q @ k.mT / 2.5).masked_fill(~keep, torch.finfo(q.dtype).min))
      @ v, dtype=_dt)
    S(f"dtype_{_n}_mask_add", lambda q, k, v, mask: soft(q @ k.mT / 2.5 + mask) @ v, dtype=_dt)

# ------------------------------------------------------------------ softcap
CAP = 4.0
S("softcap", lambda q, k, v: soft(torch.tanh(q @ k.mT / CAP) * CAP) @ v)
S("softcap_scaled", lambda q, k, v: soft(CAP * torch.tanh(q @ k.mT * C / CAP)) @ v)
S("softcap_q_scaled", lambda q, k, v: soft(CAP * ((q * C) @ k.mT / CAP).tanh()) @ v)
S("softcap_mul_reciprocal", lambda q, k, v: soft(CAP * torch.tanh(q @ k.mT * (1 / CAP))) @ v)
S("softcap_folded", lambda q, k, v: soft(CAP * torch.tanh(q @ k.mT * (C / CAP))) @ v, note="scale / cap is one number")
S("softcap_mask_add", lambda q, k, v, mask: soft(CAP * torch.tanh(q @ k.mT * C / CAP) + mask) @ v)
S("softcap_mask_fill", lambda q, k, v, keep: soft((CAP * torch.tanh(q @ k.mT * C / CAP)).masked_fill(~keep, -INF)) @ v)
S("softcap_causal", lambda q, k, v: soft((CAP * torch.tanh(q @ k.mT * C / CAP)).masked_fill(torch.ones(q.shape[2],
    q.shape[2], dtype=torch.bool).triu(1), -INF)) @ v, k=add("bhnd"), v=add("bhne"))
S("softcap_window",
  lambda q, k, v: (lambda i: soft((CAP * torch.tanh(q @ k.mT * C / CAP)).masked_fill((i[:, None] < i[None])
      | (i[:, None] - i[None] >= 3), -INF)) @ v)(torch.arange(q.shape[2])),
  k=add("bhnd"), v=add("bhne"))
S("softcap_in_place", lambda q, k, v: (lambda s: soft(s.div_(CAP).tanh_().mul_(CAP)) @ v)(q @ k.mT * C),
  note="Gemma 2's order")
S("softcap_f32", lambda q, k, v: soft((CAP * torch.tanh(q @ k.mT * C / CAP)).float()).to(q.dtype) @ v,
  dtype=torch.bfloat16)
S("softcap_one", lambda q, k, v: soft(torch.tanh(q @ k.mT * C)) @ v, note="a cap of 1")
S("softcap_then_scale", lambda q, k, v: soft(torch.tanh(q @ k.mT / CAP) * CAP * 1.0) @ v)
