"""Runs Transformers in fp32 and gathers what the golden files of the models hold."""

import numpy as np
import torch
from transformers import DynamicCache

TOP_K = 16
NOISE = 2.0**-7  # a rounding to bf16 is at most half of it
NOISE_DRAWS = 8


class RoundedCache(DynamicCache):
    """Keys (after RoPE) and values rounded to bf16, as the engine's cache holds them."""

    def update(self, key_states, value_states, *arguments, **options):
        return super().update(
            key_states.bfloat16().float(), value_states.bfloat16().float(), *arguments, **options)


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

    def clear_choices(self, token_ids):
        """-> [T]: whether a token goes to the same experts, in all layers, when the inputs of all
        layers are disturbed as roundings to bf16 would. Where it does not, a rounding decides, and
        logits say nothing about the implementation. All true without experts."""
        exact = self.choices(token_ids)
        clear = np.ones(len(token_ids), bool)
        for seed in range(NOISE_DRAWS if exact else 0):
            for chosen, other in zip(exact, self.choices(token_ids, seed), strict=True):
                clear &= (chosen.sort(-1).values == other.sort(-1).values).all(-1).numpy()
        return clear

    def choices(self, token_ids, noise_seed=None):
        """-> [T, top_k] for each router: the experts of each token."""
        found, hooks = [], []
        generator = torch.Generator().manual_seed(noise_seed or 0)

        def disturb(_, inputs):
            x = inputs[0]
            noise = 2 * torch.rand(x.shape, generator=generator) - 1
            return (x * (1 + NOISE * noise), *inputs[1:])

        def keep(_, inputs, output):
            outputs = output if isinstance(output, tuple) else ()
            found.extend(part.reshape(len(token_ids), -1) for part in outputs
                         if isinstance(part, torch.Tensor) and part.dtype == torch.int64)

        for module in self.model.modules():
            kind = type(module).__name__
            if kind.endswith("Router"):
                hooks.append(module.register_forward_hook(keep))
            if noise_seed is not None and kind.endswith(("Linear", "Router", "Experts")):
                hooks.append(module.register_forward_pre_hook(disturb))
        self.model(torch.tensor([token_ids]), use_cache=False)
        for hook in hooks:
            hook.remove()
        return found

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
