"""What qkv.export says: only conditions that declared sizes can meet, and what to do about a cache in the output."""
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402

Dim = torch.export.Dim


class Groups(torch.nn.Module):
    """Rows in groups of 8. The program has the conditions 8*batch // 8 != 8*batch and 8*batch // 8 != 1."""

    def forward(self, x):
        return x.unflatten(0, (-1, 8)).mean(1)


@pytest.mark.parametrize("batch, named", [
    (Dim("batch"), ["(x.size(0) // 8) == 1"]),
    (Dim("batch", min=2, max=9), [])])
def test_narrowed_names_what_can_hold(batch, named, tmp_path):
    report = qkv.export(Groups(), (torch.randn(16, 3),), path=tmp_path / "m.pt2", dynamic_shapes=({0: 8 * batch},))
    assert report.narrowed == [f"PyTorch refuses {n}; qkv runs such sizes, since the condition is about strides alone"
                               for n in named]


def test_a_cache_in_the_output_names_use_cache(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=1, n_embd=16, n_head=2, vocab_size=50, n_positions=32, bos_token_id=0, eos_token_id=0))
    ids = torch.randint(0, 50, (2, 6))
    with pytest.raises(qkv.Error) as e:
        qkv.export(model, (ids,), path=tmp_path / "m.pt2")
    assert str(e.value) == ("torch.export refuses: the module returns a DynamicCache, which an exported program "
                            "cannot: pass kwargs={'use_cache': False}, with which it keeps no keys and values for a "
                            "next call")
    assert len(qkv.export(model, (ids,), {"use_cache": False}, path=tmp_path / "m.pt2").differences) == 1


def test_another_type_in_the_output_is_named(tmp_path):
    class Result:
        pass

    class Model(torch.nn.Module):
        def forward(self, x):
            return Result()

    with pytest.raises(qkv.Error, match="returns a Result, which an exported program cannot: return tensors, or lists"):
        qkv.export(Model(), (torch.randn(2),), path=tmp_path / "m.pt2")
