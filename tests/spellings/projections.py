"""Whole attention modules written by hand: packed and separate projections, cross attention, pooling,
learned queries, convolutions, windows."""
from spell import *

X = dict(x=add("bnc"))
H, D, E = 4, 8, 32


def split(t):
    return t.view(t.shape[0], -1, H, D).transpose(1, 2)


def join(t):
    return t.transpose(1, 2).reshape(t.shape[0], -1, E)


def attend(q, k, v):
    return soft(q @ k.transpose(-2, -1) * D ** -0.5) @ v


PACKED = dict(qkv=lambda: nn.Linear(E, 3 * E), out=lambda: nn.Linear(E, E))
THREE = dict(q=lambda: nn.Linear(E, E), k=lambda: nn.Linear(E, E), v=lambda: nn.Linear(E, E),
             out=lambda: nn.Linear(E, E))

# ------------------------------------------------------------------ one packed projection
S("packed_chunk", lambda self, x: self.out(join(attend(*map(split, self.qkv(x).chunk(3, -1))))), parts=PACKED, **X)
S("packed_split", lambda self, x: self.out(join(attend(*map(split, self.qkv(x).split(E, dim=2))))), parts=PACKED, **X,
  note="nanoGPT's")
S("packed_split_sizes", lambda self, x: self.out(join(attend(*map(split, self.qkv(x).split([E, E, E], -1))))),
  parts=PACKED, **X)
S("packed_slices",
  lambda self, x: (lambda t: self.out(join(attend(split(t[..., :E]), split(t[..., E : 2 * E]),
                                                  split(t[..., 2 * E :])))))(self.qkv(x)), parts=PACKED, **X)
S("packed_5d_unbind",
  lambda self, x: self.out(join(attend(*self.qkv(x).reshape(x.shape[0], x.shape[1], 3, H, D).permute(2, 0, 3, 1,
      4).unbind(0)))), parts=PACKED, **X, note="timm's")
S("packed_5d_index",
  lambda self, x: (lambda t: self.out(join(attend(t[0], t[1], t[2]))))(self.qkv(x).reshape(x.shape[0], x.shape[1], 3,
      H, D).permute(2, 0, 3, 1, 4)), parts=PACKED, **X, note="DINO's")
S("packed_5d_heads_first",
  lambda self, x: self.out(join(attend(*(t.squeeze(3).transpose(1, 2) for t in self.qkv(x).view(x.shape[0],
      x.shape[1], H, 3, D).split(1, 3))))), parts=PACKED, **X, note="a head's q, k, v side by side")
S("packed_heads_chunk",
  lambda self, x: self.out(join(attend(*(t.transpose(1, 2) for t in self.qkv(x).view(x.shape[0], x.shape[1], H,
      3 * D).chunk(3, -1))))), parts=PACKED, **X, note="GPT-NeoX's")
S("packed_bloom",
  lambda self, x: (lambda t: self.out(join(attend(*(t[..., i, :].transpose(1, 2)
                                                    for i in range(3))))))(self.qkv(x).view(x.shape[0], x.shape[1], H,
                                                        3, D)), parts=PACKED, **X)
S("packed_scale_q", lambda self, x: (lambda q, k, v: self.out(join(soft((q * D ** -0.5) @ k.mT) @ v)))(*map(split,
    self.qkv(x).chunk(3, -1))), parts=PACKED, **X)
S("packed_no_bias", lambda self, x: self.out(join(attend(*map(split, self.qkv(x).chunk(3, -1))))),
  parts=dict(qkv=lambda: nn.Linear(E, 3 * E, bias=False), out=lambda: nn.Linear(E, E)), **X)
S("packed_partial_bias",
  lambda self, x: self.out(join(attend(*map(split, F.linear(x, self.w,
                                                            torch.cat([self.qb, torch.zeros_like(self.vb),
                                                                       self.vb])).chunk(3, -1))))), **X,
  parts=dict(w=lambda: nn.Parameter(rows(3 * E, E) * 0.25), qb=lambda: nn.Parameter(rows(E, seed=1)),
             vb=lambda: nn.Parameter(rows(E, seed=2)), out=lambda: nn.Linear(E, E)), note="BEiT's: no bias on k")
S("packed_conv1d",
  lambda self, x: self.out(join(attend(*map(split, torch.addmm(self.b, x.view(-1, E), self.w).view(x.shape[0], -1,
      3 * E).split(E, 2))))), **X,
  parts=dict(w=lambda: nn.Parameter(rows(E, 3 * E) * 0.25), b=lambda: nn.Parameter(rows(3 * E, seed=1)),
             out=lambda: nn.Linear(E, E)), note="GPT-2's Conv1D")
S("packed_causal",
  lambda self, x: (lambda q, k, v: self.out(join(soft((q @ k.mT * D ** -0.5).masked_fill(self.tril[: x.shape[1],
      : x.shape[1]] == 0, -INF)) @ v)))(*map(split, self.qkv(x).split(E, -1))),
  parts=dict(tril=lambda: torch.ones(64, 64).tril(), **PACKED), **X)
S("packed_sdpa", lambda self, x: self.out(join(F.scaled_dot_product_attention(*map(split, self.qkv(x).chunk(3, -1)),
                                                                              is_causal=True))), parts=PACKED, **X)
S("packed_qk_and_v",
  lambda self, x: (lambda q, k: self.out(join(attend(split(q), split(k), split(self.v(x))))))(*self.qk(x).chunk(2,
      -1)), parts=dict(qk=lambda: nn.Linear(E, 2 * E), v=lambda: nn.Linear(E, E), out=lambda: nn.Linear(E, E)), **X)
S("packed_kv",
  lambda self, x, y: (lambda k, v: self.out(join(attend(split(self.q(x)), split(k), split(v)))))(*self.kv(y).chunk(2,
      -1)), parts=dict(kv=lambda: nn.Linear(E, 2 * E), q=lambda: nn.Linear(E, E), out=lambda: nn.Linear(E, E)), **X)
S("packed_kv_5d",
  lambda self, x, y: (lambda t: self.out(join(attend(split(self.q(x)), t[0], t[1]))))(self.kv(y).reshape(y.shape[0],
      -1, 2, H, D).permute(2, 0, 3, 1, 4)),
  parts=dict(kv=lambda: nn.Linear(E, 2 * E), q=lambda: nn.Linear(E, E), out=lambda: nn.Linear(E, E)), **X, note="PVT's")
S("packed_gqa",
  lambda self, x: (lambda q, k, v: self.out(join(attend(split(q),
                                                        *(t.view(x.shape[0], -1, 2, D).transpose(1,
                                                            2).repeat_interleave(2, 1)
                                                          for t in (k, v))))))(*self.qkv(x).split([E, 16, 16], -1)),
  parts=dict(qkv=lambda: nn.Linear(E, 64), out=lambda: nn.Linear(E, E)), **X, note="Phi-3's")
S("packed_multi_query",
  lambda self, x: (lambda q, k, v: self.out(join(attend(split(q), k[:, None], v[:, None]))))(*self.qkv(x).split([E, D,
      D], -1)), parts=dict(qkv=lambda: nn.Linear(E, E + 2 * D), out=lambda: nn.Linear(E, E)), **X)
S("packed_with_mlp",
  lambda self, x: (lambda t, h: self.out(torch.cat([join(attend(*map(split, t.chunk(3, -1)))), F.gelu(h)],
                                                   -1)))(*self.qkv(x).split([3 * E, 64], -1)),
  parts=dict(qkv=lambda: nn.Linear(E, 3 * E + 64), out=lambda: nn.Linear(E + 64, E)),
  **X, note="ViT-22B's parallel layer")

# ------------------------------------------------------------------ three projections
S("three_linears_view", lambda self, x: self.out(join(attend(split(self.q(x)), split(self.k(x)), split(self.v(x))))),
  parts=THREE, **X)
S("three_linears_permute", lambda self, x: (lambda f: self.out(attend(f(self.q(x)), f(self.k(x)),
                                                                      f(self.v(x))).permute(0, 2, 1,
                                                                          3).contiguous().view(x.shape[0], -1, E)))(
    lambda t: t.view(t.shape[0], t.shape[1], H, D).permute(0, 2, 1, 3)), parts=THREE, **X, note="BERT's")
S("three_linears_mask",
  lambda self, x, pad: (lambda q, k, v: self.out(join(soft(q @ k.mT / math.sqrt(D) + (1.0 - pad[:, None,
      None].float()) * MIN) @ v)))(split(self.q(x)), split(self.k(x)), split(self.v(x))),
  parts=THREE, pad=In("bn", padding().draw), **X)
S("three_linears_scaled_q", lambda self, x: self.out(join(soft(split(self.q(x) * D ** -0.5) @ split(self.k(x)).mT)
                                                          @ split(self.v(x)))), parts=THREE, **X, note="BART's")
S("three_linears_bmm",
  lambda self, x: (lambda f: self.out(torch.bmm(soft(torch.bmm(f(self.q(x) * D ** -0.5), f(self.k(x)).transpose(1,
      2))), f(self.v(x))).view(x.shape[0], H, -1, D).transpose(1, 2).reshape(x.shape[0], -1, E)))(
    lambda t: t.view(t.shape[0], -1, H, D).transpose(1, 2).contiguous().view(t.shape[0] * H, -1, D)), parts=THREE, **X)
S("three_linears_einops", lambda self, x: (lambda f: self.out(torch.einsum("bhij,bhjd->bhid",
                                                                           soft(torch.einsum("bhid,bhjd->bhij",
                                                                               f(self.q(x)),
                                                                               f(self.k(x))) * D ** -0.5),
                                                                           f(self.v(x))).permute(0, 2, 1,
                                                                               3).reshape(x.shape[0], -1, E)))(
    lambda t: t.reshape(t.shape[0], t.shape[1], H, D).permute(0, 2, 1, 3)), parts=THREE, **X)
S("three_linears_f32", lambda self, x: self.out(join(F.softmax(split(self.q(x)) @ split(self.k(x)).mT * D ** -0.5,
                                                               dim=-1, dtype=torch.float32).to(x.dtype)
                                                     @ split(self.v(x)))), parts=THREE, **X, dtype=torch.bfloat16)
S("three_linears_no_bias", lambda self, x: join(attend(split(self.q(x)), split(self.k(x)), split(self.v(x)))),
  parts={n: (lambda: nn.Linear(E, E, bias=False)) for n in "qkv"}, **X)
S("three_linears_some_bias", lambda self, x: join(attend(split(self.q(x)), split(self.k(x)), split(self.v(x)))),
  parts=dict(q=lambda: nn.Linear(E, E), k=lambda: nn.Linear(E, E, bias=False), v=lambda: nn.Linear(E, E)), **X,
  note="Whisper's: no bias on k")
S("three_linears_gqa",
  lambda self, x: (lambda g: self.out(join(attend(split(self.q(x)), g(self.k(x)),
                                                  g(self.v(x))))))(lambda t: t.view(t.shape[0], -1, 2, D).transpose(1,
                                                      2)[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2)),
  parts=dict(q=lambda: nn.Linear(E, E), k=lambda: nn.Linear(E, 16), v=lambda: nn.Linear(E, 16),
             out=lambda: nn.Linear(E, E)), **X)
S("three_linears_narrow_v", lambda self, x: attend(split(self.q(x)), split(self.k(x)), self.v(x).view(x.shape[0], -1,
    H, 5).transpose(1, 2)), parts=dict(q=lambda: nn.Linear(E, E), k=lambda: nn.Linear(E, E),
                                       v=lambda: nn.Linear(E, 20)), **X)
S("three_linears_weights", lambda self, x: (lambda p: (self.out(join(p @ split(self.v(x)))),
                                                       p))(soft(split(self.q(x)) @ split(self.k(x)).mT * D ** -0.5)),
  parts=THREE, **X)
S("single_head", lambda self, x: soft(self.q(x) @ self.k(x).mT * E ** -0.5) @ self.v(x),
  parts={n: THREE[n] for n in "qkv"}, **X)
S("single_head_unbatched", lambda self, x: soft(self.q(x) @ self.k(x).T / E ** 0.5) @ self.v(x),
  parts={n: THREE[n] for n in "qkv"}, x=add("nc"), dynamic="n")
S("two_layers",
  lambda self, x: (lambda y: y + self.out(join(attend(split(self.q2(y)), split(self.k2(y)), split(self.v2(y))))))(x
      + self.out(join(attend(split(self.q(x)), split(self.k(x)), split(self.v(x)))))),
  parts=dict(THREE, q2=lambda: nn.Linear(E, E), k2=lambda: nn.Linear(E, E), v2=lambda: nn.Linear(E, E)), **X, count=2)
S("shared_projection", lambda self, x: self.out(join(attend(split(self.q(x)), split(self.q(x)), split(self.v(x))))),
  parts={n: THREE[n] for n in ("q", "v", "out")}, **X, note="queries are keys")

# ------------------------------------------------------------------ cross, pooled, learned
S("cross_linears", lambda self, x, y: self.out(join(attend(split(self.q(x)), split(self.k(y)), split(self.v(y))))),
  parts=THREE, **X)
S("cross_padding",
  lambda self, x, y, pad: (lambda q, k, v: self.out(join(soft((q @ k.mT * D ** -0.5).masked_fill(~pad[:, None, None],
      MIN)) @ v)))(split(self.q(x)), split(self.k(y)), split(self.v(y))), parts=THREE, **X)
S("cross_both_ways", lambda self, x, y: (lambda s: (soft(s) @ self.v(y), soft(s.mT) @ self.q(x)))(self.q(x)
    @ self.k(y).mT * E ** -0.5), parts={n: THREE[n] for n in "qkv"}, **X, count=2,
  note="one product, softmax over either side: LXMERT's idea")
S("cross_both_ways_axes",
  lambda self, x, y: (lambda s: (s.softmax(2) @ self.v(y), s.softmax(1).mT @ self.q(x)))(self.q(x) @ self.k(y).mT
      * E ** -0.5), parts={n: THREE[n] for n in "qkv"}, **X, count=2)
S("learned_query", lambda self, y: self.out(join(attend(split(self.query.expand(y.shape[0], -1, -1)),
                                                        split(self.k(y)), split(self.v(y))))),
  parts=dict({n: THREE[n] for n in ("k", "v", "out")}, query=lambda: nn.Parameter(rows(1, 6, E))),
  dynamic="bm", note="Perceiver's latents")
S("learned_query_projected", lambda self, y: join(attend(split(self.q(self.query)), split(self.k(y)),
                                                         split(self.v(y)))),
  parts=dict({n: THREE[n] for n in "qkv"}, query=lambda: nn.Parameter(rows(1, 6, E))), dynamic="bm")
S("pool_one_query", lambda self, y: join(attend(split(self.query.expand(y.shape[0], -1, -1)), split(self.k(y)),
                                                split(self.v(y))))[:, 0],
  parts=dict(k=THREE["k"], v=THREE["v"], query=lambda: nn.Parameter(rows(1, 1, E))), dynamic="bm")
S("pool_class_token", lambda self, y: join(attend(split(self.q(y[:, :1])), split(self.k(y)), split(self.v(y)))),
  parts={n: THREE[n] for n in "qkv"}, dynamic="bm", note="CaiT's")
S("pool_mean_query", lambda self, y: join(attend(split(self.q(y.mean(1, keepdim=True))), split(self.k(y)),
                                                 split(self.v(y)))), parts={n: THREE[n] for n in "qkv"}, dynamic="bm",
  note="CLIP's attention pool")
S("pool_learned_scores", lambda self, y: (self.score(y).softmax(1) * y).sum(1), kind="trap",
  parts=dict(score=lambda: nn.Linear(E, 1)), dynamic="bm", note="a query vector, but as a Linear of y: may be left")
S("perceiver_kv_cat",
  lambda self, x, y: (lambda z: self.out(join(attend(split(self.q(x)), split(self.k(z)),
                                                     split(self.v(z))))))(torch.cat([y, x], 1)), parts=THREE, **X,
  note="Flamingo's resampler")
S("slots_over_keys",
  lambda self, x, y: (lambda p: (p / p.sum(-1, keepdim=True)) @ self.v(y))((self.k(y) @ self.q(x).mT * E **
                                                                            -0.5).softmax(-1).mT + 1e-8), kind="trap",
  parts={n: THREE[n] for n in "qkv"}, **X,
  note="slot attention: softmax over the queries, then a mean over the keys")

# ------------------------------------------------------------------ images
IMAGE = dict(x=add("bc46"), dynamic="b")
CONVS = dict(q=lambda: nn.Conv2d(E, 8, 1), k=lambda: nn.Conv2d(E, 8, 1), v=lambda: nn.Conv2d(E, E, 1))
S("image_sagan", lambda self, x: (lambda p: torch.bmm(self.v(x).flatten(2), p.permute(0, 2,
    1)).view(x.shape))(soft(torch.bmm(self.q(x).flatten(2).permute(0, 2, 1), self.k(x).flatten(2)) * 0.3)),
  parts=CONVS, **IMAGE)
S("image_non_local", lambda self, x: (lambda f: (soft(f(self.q(x)) @ f(self.k(x)).mT * 0.3) @ f(self.v(x))).permute(0,
    2, 1).reshape(x.shape) + x)(lambda t: t.flatten(2).permute(0, 2, 1)), parts=CONVS, **IMAGE)
S("image_vae", lambda self, x: (lambda b, c, h, w: torch.bmm(self.v(x).reshape(b, c, h * w),
                                                             soft(torch.bmm(self.q(x).reshape(b, 8, h * w).permute(0,
                                                                 2, 1), self.k(x).reshape(b, 8, h * w)) * 8 **
                                                                  -0.5).permute(0, 2, 1)).reshape(b, c, h,
                                                                      w))(*x.shape),
  parts=CONVS, **IMAGE, note="Stable Diffusion's VAE")
S("image_heads",
  lambda self, x: (lambda q, k, v: (soft((q * 8 ** -0.25).mT @ (k * 8 ** -0.25))
                                    @ v.mT).mT.reshape(x.shape))(*self.qkv(x).flatten(2).reshape(-1, 4, 24,
                                        24).split(8, 2)), parts=dict(qkv=lambda: nn.Conv2d(E, 3 * E, 1)), **IMAGE)
S("image_reduced_keys", lambda self, x: (lambda y: join(attend(split(self.q(x.flatten(2).mT)), split(self.k(y)),
                                                               split(self.v(y)))))(self.sr(x).flatten(2).mT),
  parts=dict({n: THREE[n] for n in "qkv"}, sr=lambda: nn.Conv2d(E, E, 2, 2)), **IMAGE,
  note="SegFormer's")
S("image_windows", lambda self, x: (lambda w: (lambda o: o.view(-1, 2, 3, 2, 2, E).permute(0, 5, 1, 3, 2,
    4).reshape(x.shape))(join(attend(*(split(f(w)) for f in (self.q, self.k, self.v))))))(
    x.view(-1, E, 2, 2, 3, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, E)), parts={n: THREE[n] for n in "qkv"},
  **IMAGE, note="2x2 windows")
S("image_rows_then_columns",
  lambda self, x: (lambda a: (lambda t: a(a(t).transpose(1, 2)).transpose(1, 2))(x.permute(0, 2, 3, 1)))(
    lambda t: (lambda f: (soft(f(self.q(t)) @ f(self.k(t)).mT * D ** -0.5) @ f(self.v(t))).transpose(2,
        3).flatten(3))(lambda u: u.unflatten(-1, (H, D)).transpose(2, 3))), parts={n: THREE[n] for n in "qkv"},
  **IMAGE, count=2, note="axial")
S("channel_attention",
  lambda self, x: (lambda q, k, v: (soft((F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT) * self.t)
                                    @ v).permute(0, 3, 1, 2).reshape(x.shape))(
    *self.qkv(x).reshape(x.shape[0], x.shape[1], 3, H, D).permute(2, 0, 3, 4, 1).unbind(0)),
  parts=dict(qkv=PACKED["qkv"], t=lambda: nn.Parameter(torch.tensor([2.0, 3.0, 4.0, 5.0]).view(4, 1, 1))), **X,
  note="XCiT's: channels attend to channels, a scale a head")
