"""Runs Transformers in fp32 and gathers what the golden files of the models hold."""

import contextlib

import numpy as np
import torch
from transformers import DynamicCache

TOP_K = 16
NOISE = 2.0**-7  # a rounding to bf16 is at most half of it
NOISE_DRAWS = 16


class RoundedCache(DynamicCache):
    """Keys (after RoPE) and values rounded to bf16, as the engine's cache holds them."""

    def update(self, key_states, value_states, *arguments, **options):
        return super().update(
            key_states.bfloat16().float(), value_states.bfloat16().float(), *arguments, **options)


@contextlib.contextmanager
def recorded_choices():
    """-> the indices that torch.topk returns meanwhile: what routers choose."""
    originals, taken = (torch.topk, torch.Tensor.topk), []

    def topk(*arguments, **options):
        best = originals[0](*arguments, **options)
        taken.append(best.indices)
        return best

    torch.topk = torch.Tensor.topk = topk
    try:
        yield taken
    finally:
        torch.topk, torch.Tensor.topk = originals


class Reference:
    """A causal language model of Transformers, its layers' outputs and its logits as numpy arrays."""

    def __init__(self, model):
        self.model = model.eval()
        torch.set_grad_enabled(False)

    def run_with_rounded_cache(self, token_ids):
        """-> logits [T, V]."""
        cache = RoundedCache(config=self.model.config)
        return self.model(
            torch.tensor([token_ids]), past_key_values=cache, use_cache=True).logits[0].numpy()

    def run(self, token_ids):
        """-> logits [T, V], and [layers + 1, T, hidden] of the residual stream: the embeddings,
        then what each layer leaves (before the final norm)."""
        residual = []
        layers = self.model.model.layers
        hooks = [layers[0].register_forward_pre_hook(lambda _, inputs: residual.append(inputs[0]))]
        for layer in layers:
            hooks.append(layer.register_forward_hook(
                lambda _, inputs, output: residual.append(
                    output[0] if isinstance(output, tuple) else output)))
        logits = self.model(torch.tensor([token_ids]), use_cache=False).logits[0]
        for hook in hooks:
            hook.remove()
        assert logits.dtype == torch.float32
        assert len(residual) == len(layers) + 1
        return logits.numpy(), torch.cat(residual).numpy()

    def chooses_clearly(self, token_ids):
        """Whether the last token goes to the same experts, in all layers, when the inputs of all layers
        are disturbed as roundings to bf16 would. Where it does not, a rounding decides, and neither its
        logits nor those of tokens that attend to it say anything about the implementation. True
        without experts."""
        if not any(type(module).__name__.endswith("Experts") for module in self.model.modules()):
            return True
        generator = torch.Generator().manual_seed(len(token_ids))
        copies = 1 + NOISE_DRAWS  # the first is exact

        def disturb(_, inputs):
            noise = 2 * torch.rand((copies, inputs[0].numel() // copies), generator=generator) - 1
            noise[0] = 0
            return (inputs[0] * (1 + NOISE * noise).view(inputs[0].shape), *inputs[1:])

        hooks = [module.register_forward_pre_hook(disturb) for module in self.model.modules()
                 if type(module).__name__.endswith(("Linear", "Router", "Experts"))]
        with recorded_choices() as taken:
            self.model(torch.tensor([token_ids] * copies), use_cache=False)
        for hook in hooks:
            hook.remove()
        last = [chosen.reshape(copies, len(token_ids), -1)[:, -1].sort(-1).values for chosen in taken]
        return all(bool((chosen == chosen[0]).all()) for chosen in last)

    def greedy(self, token_ids, count):
        """-> the continuation, and by how much each of its tokens led before the second best."""
        tokens, margins = [], []
        inputs, cache = torch.tensor([token_ids]), None
        for _ in range(count):
            output = self.model(inputs, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            best = output.logits[0, -1].topk(2)
            margins.append((best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
            inputs = torch.tensor([[tokens[-1]]])
        return np.array(tokens, np.int32), np.array(margins, np.float32)


def logsumexp(logits):
    return torch.logsumexp(torch.from_numpy(logits).double(), dim=-1).float().numpy()


def top_logits(logits, k=TOP_K):
    """-> ids [T, k] and logits [T, k], best first."""
    best = torch.from_numpy(logits).topk(k, dim=-1)
    return best.indices.numpy().astype(np.int32), best.values.numpy()


def mean_nll(logits, token_ids):
    """Of tokens 1.. given those before them."""
    losses = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits[:-1]).double(), torch.tensor(token_ids[1:]), reduction="none")
    return losses.mean().item()


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value
