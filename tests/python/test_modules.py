"""qkv.nn.from_pt2: files as trees of modules with the parts of each attention."""
import copy

import pytest

torch = pytest.importorskip("torch")
from parts import R, fn  # noqa: E402
from small import MODELS, Attention, Gated, Windows, called, close, convolutions, swin, tensors, windows  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import qkv  # noqa: E402
import qkv.nn  # noqa: E402


def exported(model, inputs, **how):
    args, kwargs = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
    return torch.export.export(model.eval(), args, kwargs, strict=False, **how)


def inputs_of(part, call):
    """What `part` is given while `call` runs."""
    seen = []
    handle = part.register_forward_pre_hook(lambda _, args: seen.append(args))
    call()
    handle.remove()
    return seen[0]


@pytest.mark.turns
@pytest.mark.parametrize("make", MODELS)
def test_tree_equals_source(make):
    model, inputs = make()
    tree = qkv.nn.from_pt2(exported(model, inputs))
    close(called(tree, inputs), called(model, inputs))
    assert set(tree.state_dict()) == set(model.state_dict())
    names = {name for name, _ in model.named_modules()}
    assert len(tree.attentions) == (1 if make is convolutions else 4 if make is swin else 2)
    for found in tree.attentions:
        assert found.path in names
        for part in (found.attention, found.in_projection, found.out_projection):
            assert tree.get_submodule(part)
        assert (found.partition is not None) == (found.reverse is not None) == (make in (swin, windows))
        q, k, v, *_ = inputs_of(tree.get_submodule(found.attention), lambda: called(tree, inputs))
        assert q.ndim == 4 and q.shape[:2] == k.shape[:2] == v.shape[:2] or make.__name__ == "llama"


def test_parts_take_and_return_what_their_names_say():
    model, x = Windows(16), R(2, 8, 8, 16)
    tree = qkv.nn.from_pt2(exported(model, (x,)))
    (found,) = tree.attentions
    normed, = inputs_of(tree.get_submodule(found.partition), lambda: tree(x))
    cut, = inputs_of(tree.get_submodule(found.in_projection), lambda: tree(x))
    heads = inputs_of(tree.get_submodule(found.attention), lambda: tree(x))
    mixed, = inputs_of(tree.get_submodule(found.out_projection), lambda: tree(x))
    put, = inputs_of(tree.get_submodule(found.reverse), lambda: tree(x))
    assert normed.shape == (2, 8, 8, 16) and cut.shape == put.shape == (8, 16, 16)
    assert [t.shape for t in heads] == [(8, 2, 16, 8)] * 3 and mixed.numel() == normed.numel()
    close([tree.get_submodule(found.reverse)(tree.get_submodule(found.partition)(x))], [x])  # one undoes the other


def test_a_part_is_swapped():
    """By what takes the same tensors: here an attention of half the keys."""
    class Sparse(nn.Module):
        def forward(self, q, k, v):
            return nn.functional.scaled_dot_product_attention(q, k[:, :, ::2], v[:, :, ::2])

    model, x = Attention(16, 2), R(2, 6, 16)
    tree = qkv.nn.from_pt2(exported(model, (x,)))
    (found,) = tree.attentions
    before = tree(x)
    setattr(tree.get_submodule(found.path), found.attention.rpartition(".")[2], Sparse())
    q, k, v = model.qkv(x).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
    expected = model.out(Sparse()(q, k, v).transpose(1, 2).reshape(2, 6, 16))
    close([tree(x)], [expected])
    assert (tree(x) - before).abs().max() > 1e-3


def test_a_projection_is_quantised_by_its_name():
    model, x = Attention(16, 2), R(2, 6, 16)
    tree = qkv.nn.from_pt2(exported(model, (x,)))
    with torch.no_grad():
        weight = tree.get_parameter("out.weight")
        scale = weight.abs().amax(1, keepdim=True) / 127
        weight.copy_((weight / scale).round() * scale)
        model.out.weight.copy_(weight)
    close([tree(x)], [model(x)])


def test_it_trains_as_the_source():
    results = []
    torch.manual_seed(0)
    model, x = nn.Sequential(Gated(16), Gated(16)), R(2, 6, 16)
    tree = qkv.nn.from_pt2(exported(copy.deepcopy(model), (x,)))
    for module in (model, tree):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (module(x) - R(2, 6, 16, seed=1)).square().mean().backward()
            optimizer.step()
        results.append([dict(module.named_parameters())[n].detach() for n, _ in model.named_parameters()])
    close(results[1], results[0], 1e-4)


@pytest.mark.turns
def test_it_exports_again_with_its_sizes(tmp_path):
    model, x = nn.Sequential(Gated(16), Gated(16)), R(2, 6, 16)
    sizes = ({0: Dim("batch", min=1, max=8), 1: Dim("seq", min=2, max=64)},)
    file = tmp_path / "m.pt2"
    torch.export.save(exported(model, (x,), dynamic_shapes=sizes), file)
    tree = qkv.nn.from_pt2(file)
    close([tree(R(3, 9, 16))], [model(R(3, 9, 16))])
    again = torch.export.export(tree, (x,), dynamic_shapes=(sizes,))  # forward(*args)
    close([again.module()(R(3, 9, 16))], [model(R(3, 9, 16))])
    found = qkv.Model(again)
    close([torch.from_dlpack(found.run_dlpack([R(5, 4, 16)])["output_0"])], [model(R(5, 4, 16)).detach()])
    assert len(qkv.nn.from_pt2(again).attentions) == 2


def test_a_copy_has_its_own_weights():
    model, x = Attention(16, 2), R(2, 6, 16)
    tree = qkv.nn.from_pt2(exported(model, (x,)))
    other = copy.deepcopy(tree)
    with torch.no_grad():
        for p in tree.parameters():
            p.zero_()
    assert tree(x).abs().max() == 0
    close([other(x)], [model(x)])


def test_attentions_without_some_parts():
    """Queries and keys that nothing projects, a result that nothing projects, two attentions in one module."""
    cross = fn(lambda self, q, x: nn.functional.scaled_dot_product_attention(q, x, self.v(x)) + q, v=nn.Linear(8, 8))
    tree = qkv.nn.from_pt2(exported(cross, (R(2, 2, 5, 8), R(2, 2, 7, 8))))
    (found,) = tree.attentions
    assert found.in_projection and not found.out_projection and not found.partition
    close([tree(R(2, 2, 5, 8), R(2, 2, 7, 8))], [cross(R(2, 2, 5, 8), R(2, 2, 7, 8))])

    bare = fn(lambda self, q, k: nn.functional.scaled_dot_product_attention(q, k, k))
    tree = qkv.nn.from_pt2(exported(bare, (R(2, 2, 5, 8), R(2, 2, 7, 8))))
    assert tree.attentions[0].in_projection is None and tree.attentions[0].path == ""
    close([tree(R(2, 2, 5, 8), R(2, 2, 7, 8))], [bare(R(2, 2, 5, 8), R(2, 2, 7, 8))])

    both = fn(lambda self, x: self.b(self.f(self.a(x))), a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    attend = nn.functional.scaled_dot_product_attention
    both.f = lambda y: sum(attend(q, q, q) for q in (y.unsqueeze(1), y[:, None] * 2))[:, 0]
    tree = qkv.nn.from_pt2(exported(both, (R(2, 5, 8),)))
    assert len({f.attention for f in tree.attentions}) == 2
    close([tree(R(2, 5, 8))], [both(R(2, 5, 8))])


def test_onnx_files_have_trees_too(tmp_path):
    model, x = Attention(16, 2), R(2, 6, 16)
    qkv.Model(exported(model, (x,))).save_onnx(tmp_path / "m.onnx")
    tree = qkv.nn.from_pt2(tmp_path / "m.onnx")
    close(tensors(tree(x)), [model(x)])
    assert len(tree.attentions) == 1
