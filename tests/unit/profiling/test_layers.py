import pytest
import torch

from specdec_core.errors import ConfigError
from specdec_core.models.tiny import tiny_library_model, tiny_target
from specdec_core.profiling.layers import layer_statistics


def test_statistics_equal_hooks_on_the_library_model():
    prompts = [[1, 2, 3], [4, 5, 6, 7]]
    statistics = layer_statistics(tiny_target("llama", seed=2), prompts)
    assert [s.unit for s in statistics] == ["a0", "m0", "a1", "m1", "a2", "m2"]
    model = tiny_library_model("llama", seed=2)
    ratios = {}
    for layer, block in enumerate(model.model.layers):
        for unit, half, norm in (
            (f"a{layer}", block.self_attn, block.input_layernorm),
            (f"m{layer}", block.mlp, block.post_attention_layernorm),
        ):
            seen = {}
            norm.register_forward_hook(lambda _m, args, _o, s=seen: s.update(x=args[0]))
            half.register_forward_hook(
                lambda _m, _a, out, s=seen, u=unit: ratios.setdefault(u, []).append(
                    (out[0] if isinstance(out, tuple) else out).norm(dim=-1) / s["x"].norm(dim=-1)
                )
            )
    with torch.no_grad():
        for prompt in prompts:
            model(torch.tensor([prompt]))
    for entry in statistics:
        expected = sum(float(r.sum()) for r in ratios[entry.unit]) / 7  # tokens of both prompts
        assert entry.relative_norm == pytest.approx(expected, rel=1e-4)


def test_cosine_is_one_where_a_half_adds_nothing():
    target = tiny_target("llama", seed=2)
    target.mlp[1] = lambda x: torch.zeros_like(x)
    by_unit = {s.unit: s for s in layer_statistics(target, [[1, 2, 3]])}
    assert by_unit["m1"].cosine == pytest.approx(1.0)
    assert by_unit["m1"].relative_norm == 0.0


def test_prompts_are_required():
    with pytest.raises(ConfigError, match="at least one prompt"):
        layer_statistics(tiny_target("llama"), [])
