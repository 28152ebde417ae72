"""Attention by einsum, in the letters that people use; batch, heads and length in every order; ellipses; spaces;
capital letters; sums left to einsum."""
from spell import *

E = torch.einsum
A = 0.4
BN = dict(q=add("bnhd", 1.2), k=add("bmhd", 1.2), v=add("bmhe"))
NB = dict(q=add("nbhd", 1.2), k=add("mbhd", 1.2), v=add("mbhe"))
THREE = dict(q=add("bnd", 1.2), k=add("bmd", 1.2), v=add("bme"))


def pair(name, scores, values, axis=-1, **options):
    S("einsum_" + name, lambda q, k, v: E(values, (E(scores, q, k) * A).softmax(axis), v), **options)


pair("bhqd", "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd")
pair("bhid_bhjd", "bhid,bhjd->bhij", "bhij,bhjd->bhid")
pair("bhnd_spaces", "b h n d, b h m d -> b h n m", "b h n m, b h m e -> b h n e")
pair("capitals", "BHND,BHMD->BHNM", "BHNM,BHME->BHNE")
pair("ellipsis", "...qd,...kd->...qk", "...qk,...kd->...qd")
pair("ellipsis_front", "b...nd,b...md->b...nm", "b...nm,b...me->b...ne")
pair("other_letters", "abcd,abed->abce", "abce,abed->abcd")
pair("bqhd", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", **BN)
pair("bqhd_to_bhqd", "bqhd,bkhd->bhqk", "bhqk,bkhd->bhqd", **BN)
pair("bthc", "bthc,bshc->bhts", "bhts,bshc->bthc", **BN)
pair("bihd_heads_last", "bihd,bjhd->bijh", "bijh,bjhd->bihd", axis=2, **BN,
     note="scores (B, N, M, H): softmax over dimension 2")
pair("bqhd_heads_middle", "bqhd,bkhd->bqhk", "bqhk,bkhd->bqhd", **BN, note="scores (B, N, H, M)")
pair("keys_first", "bhqd,bhkd->bhkq", "bhkq,bhkd->bhqd", axis=-2,
     note="scores (B, H, M, N): softmax over the keys is over dimension -2")
pair("keys_first_bqhd", "bqhd,bkhd->bkhq", "bkhq,bkhd->bqhd", axis=1, **BN)
pair("swapped_operands", "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd")
pair("sbhd", "ibhd,jbhd->bhij", "bhij,jbhd->ibhd", **NB)
pair("sbhd_ijbh", "ibnd,jbnd->ijbn", "ijbn,jbnd->ibnd", axis=1, **NB, note="Transformer-XL's: softmax over dimension 1")
pair("sbhd_bnij", "ibnd,jbnd->bnij", "bnij,jbnd->ibnd", **NB, note="XLNet's")
pair("three", "bqd,bkd->bqk", "bqk,bkd->bqd", **THREE)
pair("three_keys_first", "bqd,bkd->bkq", "bkq,bkd->bqd", axis=1, **THREE)
pair("three_shared", "nd,bmd->bnm", "bnm,bme->bne", q=add("nd", 1.2), k=add("bmd", 1.2), v=add("bme"),
     note="learned queries")
pair("two", "id,jd->ij", "ij,jd->id", q=add("nd", 1.2), k=add("md", 1.2), v=add("me"), dynamic="nm")
pair("one", "d,md->m", "m,me->e", q=add("d", 1.2), k=add("md", 1.2), v=add("me"), dynamic="m")
pair("pooling", "d,bmd->bm", "bm,bme->be", q=add("d", 1.2), k=add("bmd", 1.2), v=add("bme"), dynamic="bm")
pair("heads_first", "hbnd,hbmd->hbnm", "hbnm,hbme->hbne", q=add("hbnd", 1.2), k=add("hbmd", 1.2), v=add("hbme"))
pair("channels_first", "bhdn,bhdm->bhnm", "bhnm,bhem->bhen", q=add("bhdn", 1.2), k=add("bhdm", 1.2), v=add("bhem"))
pair("channels_first_bct", "bct,bcs->bts", "bts,bcs->bct", q=add("bdn", 1.2), k=add("bdm", 1.2), v=add("bem"),
     note="guided diffusion's")
pair("channels_first_output_bnd", "bhdn,bhdm->bhnm", "bhnm,bhem->bnhe", q=add("bhdn", 1.2), k=add("bhdm", 1.2),
     v=add("bhem"))
pair("pixels", "bhqxy,bhkxy->bhqk", "bhqk,bhkxy->bhqxy", q=add("bhn42", 1.2), k=add("bhm42", 1.2), v=add("bhm32"),
     note="two contracted dimensions")
pair("axial", "bxhnd,bxhmd->bxhnm", "bxhnm,bxhme->bxhne", q=add("b3hnd", 1.2), k=add("b3hmd", 1.2), v=add("b3hme"))
pair("axial_permuted", "bnxhd,bmxhd->bxhnm", "bxhnm,bmxhe->bnxhe", q=add("bn3hd", 1.2), k=add("bm3hd", 1.2),
     v=add("bm3he"), note="attention along one of two axes")
pair("grouped", "bgrnd,bgmd->bgrnm", "bgrnm,bgme->bgrne", q=add("bgrnd", 1.2), k=add("bgmd", 1.2), v=add("bgme"))
pair("grouped_bn", "bngrd,bmgd->bgrnm", "bgrnm,bmge->bngre", q=add("bngrd", 1.2), k=add("bmgd", 1.2), v=add("bmge"))
pair("grouped_rg", "bnrgd,bmgd->brgnm", "brgnm,bmge->bnrge", q=add("bnrgd", 1.2), k=add("bmgd", 1.2), v=add("bmge"),
     note="heads go round the groups")
pair("multi_query", "bhnd,bmd->bhnm", "bhnm,bme->bhne", k=add("bmd", 1.2), v=add("bme"))
pair("multi_query_bn", "bnhd,bmd->bhnm", "bhnm,bme->bnhe", q=add("bnhd", 1.2), k=add("bmd", 1.2), v=add("bme"))
pair("multi_query_flat", "bnhd,bmd->bnhm", "bnhm,bme->bnhe", q=add("bnhd", 1.2), k=add("bmd", 1.2), v=add("bme"))

S("einsum_values_first", lambda q, k, v: E("bhme,bhnm->bhne", v, soft(E("bhmd,bhnd->bhnm", k, q) * A)),
  note="operands the other way round")
S("einsum_scale_q", lambda q, k, v: E("bhnm,bhme->bhne", soft(E("bhnd,bhmd->bhnm", q * A, k)), v))
S("einsum_scale_both", lambda q, k, v: E("bts,bcs->bct", soft(E("bct,bcs->bts", q * 8 ** -0.25, k * 8 ** -0.25)), v),
  q=add("bdn", 1.2), k=add("bdm", 1.2), v=add("bem"))
S("einsum_three_operands", lambda q, k, v: E("bhnm,bhme->bhne", soft(E("bhnd,bhmd,->bhnm", q, k, torch.tensor(A))),
                                             v), note="the scale is an operand")
S("einsum_mask", lambda q, k, v, mask: E("bhnm,bmhe->bnhe", soft(E("bnhd,bmhd->bhnm", q, k) * A + mask), v), **BN)
S("einsum_fill", lambda q, k, v, drop: E("bhnm,bmhe->bnhe",
                                         soft((E("bnhd,bmhd->bhnm", q, k) * A).masked_fill(drop, -INF)), v), **BN)
S("einsum_heads_last_mask", lambda q, k, v, drop: E("bnmh,bmhe->bnhe",
                                                    (E("bnhd,bmhd->bnmh", q, k) * A).masked_fill(drop[..., None],
                                                        -1e9).softmax(2), v), drop=drop("bnm"), **BN)
S("einsum_then_matmul", lambda q, k, v: soft(E("bhnd,bhmd->bhnm", q, k) * A) @ v)
S("matmul_then_einsum", lambda q, k, v: E("bhnm,bhme->bnhe", soft(q @ k.mT * A), v))
S("einsum_out_flat", lambda q, k, v: E("bhnm,bmhe->bnhe", soft(E("bnhd,bmhd->bhnm", q, k) * A), v).reshape(q.shape[0],
    q.shape[1], -1), **BN)
S("einsum_causal", lambda q, k, v: E("bhnm,bmhe->bnhe",
                                     soft(E("bnhd,bmhd->bhnm", q, k) * A + torch.full((q.shape[1], q.shape[1]),
                                         -INF).triu(1)), v), q=add("bnhd", 1.2), k=add("bnhd", 1.2), v=add("bnhe"))
S("einsum_f32", lambda q, k, v: E("bhnm,bmhe->bnhe", soft(E("bnhd,bmhd->bhnm", q, k).float() * A).type_as(q), v),
  **BN, dtype=torch.bfloat16)
S("einsum_softcap", lambda q, k, v: E("bhnm,bmhe->bnhe", soft(torch.tanh(E("bnhd,bmhd->bhnm", q, k) * A / 4) * 4), v),
  **BN)
S("einsum_late_normalised", lambda q, k, v: (lambda e: E("bhnm,bmhe->bnhe", e, v) / E("bhnm->bnh", e)[...,
    None])((E("bnhd,bmhd->bhnm", q, k) * A).exp()), **BN)
S("einsum_weights_returned",
  lambda q, k, v: (lambda p: (E("bhnm,bmhe->bnhe", p, v), p))(soft(E("bnhd,bmhd->bhnm", q, k) * A)), **BN)
S("einsum_output_projection", lambda self, q, k, v: E("bhne,hec->bnc", E("bhnm,bhme->bhne",
                                                                         soft(E("bhnd,bhmd->bhnm", q, k) * A), v),
                                                      self.w), parts=dict(w=lambda: nn.Parameter(rows(4, 6, 32) * 0.2)))
S("einsum_input_projection",
  lambda self, x, y: (lambda q, k, v: E("bhnm,bhme->bnhe", soft(E("bhnd,bhmd->bhnm", q, k) * A),
                                        v))(*(E("bnc,chd->bhnd", t, w)
                                              for t, w in ((x, self.q), (y, self.k), (y, self.v)))),
  parts=dict(q=lambda: nn.Parameter(rows(32, 4, 8) * 0.2), k=lambda: nn.Parameter(rows(32, 4, 8, seed=1) * 0.2),
             v=lambda: nn.Parameter(rows(32, 4, 6, seed=2) * 0.2)))
