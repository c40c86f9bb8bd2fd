#!/usr/bin/env python3
"""Trains a small EAGLE-3 head on what a model itself says, in minutes on a CPU.

    pip install torch transformers safetensors     # made with transformers 5.24, torch 2.15
    tilewright convert SmolLM2-135M-Instruct.Q4_1.gguf hf
    python tools/eagle/train_eagle3.py --model hf --output head --minutes 10
    tilewright serve --model-path hf --speculative-algorithm EAGLE3 --speculative-draft-model-path head

The model, of the Llama family in a Hugging Face folder, goes on greedily from pieces of the texts
(by default this repository's code and pages); with --read it reads them instead, which gives more text
in the same time. The head learns to say what the model says, from the hidden states and from its own in
place of them, as when it guesses further ("training-time test"). It is a proxy to measure with, not what
hours on a GPU give.
"""

import argparse
import pathlib
import time

import torch
import transformers
from eagle3_head import (Eagle3Head, captured_states, head_config, head_tensors, shifted,
                         write_config)
from safetensors.torch import save_file
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROMPT, OUTPUT, BATCH = 64, 192, 8
GUESSES = 3  # that are learned, one from the other


def pieces_of(tokenizer, files, length):
    """Of so many tokens, mixed."""
    pieces = []
    for file in files:
        tokens = tokenizer(file.read_text(errors="replace")).input_ids
        pieces += [tokens[i:i + length] for i in range(0, len(tokens) - length, length)]
    order = torch.randperm(len(pieces)).tolist()
    return torch.tensor([pieces[i] for i in order])


@torch.no_grad()
def generate(model, pieces):
    return model.generate(pieces, attention_mask=torch.ones_like(pieces), do_sample=False,
                          min_new_tokens=OUTPUT, max_new_tokens=OUTPUT)


def generated_texts(model, pieces, deadline):
    """[BATCH, PROMPT + OUTPUT] each."""
    texts = []
    for first in range(0, len(pieces) - BATCH + 1, BATCH):
        texts.append(generate(model, pieces[first:first + BATCH]))
        if time.monotonic() > deadline:
            break
    return texts


def loss_of(head, model, tokens, columns):
    """The mean over guesses of the cross entropy with what the model says; and how often the first
    guess is right."""
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            output = model(tokens, output_hidden_states=True)
        target = columns[output.logits.argmax(-1)]  # of token i: what follows it
        embedded = model.model.embed_tokens(tokens)
        captured = captured_states(output.hidden_states, head.config).float()
    state, losses, right = shifted(head.fc(captured)), [], None
    for guess in range(GUESSES):
        logits, hidden = head(embedded, state)
        mask = target >= 0
        mask[:, :PROMPT] = False
        losses.append(functional.cross_entropy(logits[mask], target[mask]))
        if guess == 0:
            right = (logits[mask].argmax(-1) == target[mask]).float().mean() * mask.sum() \
                / mask[:, PROMPT:].numel()
        state = shifted(hidden)
    return sum(losses) / GUESSES, right


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=10, help="a third of them to generate")
    parser.add_argument("--read", action="store_true", help="learn from the texts as they are")
    parser.add_argument("--vocabulary", type=int, default=8192, help="tokens of the head, at most")
    parser.add_argument("--texts", type=pathlib.Path, nargs="*", help="files to go on from")
    options = parser.parse_args()
    torch.manual_seed(1)
    begin = time.monotonic()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, dtype=torch.float32).eval().requires_grad_(False)
    files = options.texts or [*sorted(ROOT.glob("src/**/*.cc")), *sorted(ROOT.glob("docs/**/*.md"))]
    pieces = pieces_of(tokenizer, files, PROMPT + OUTPUT if options.read else PROMPT)
    texts = (pieces[:len(pieces) // BATCH * BATCH].split(BATCH) if options.read else
             generated_texts(model, pieces, begin + options.minutes * 20))
    print(f"{len(texts) * BATCH} texts of {PROMPT + OUTPUT} tokens", flush=True)

    count = torch.bincount(torch.cat(texts)[:, PROMPT:].flatten(), minlength=model.config.vocab_size)
    token_ids = count.argsort(descending=True)[:options.vocabulary]
    token_ids = token_ids[count[token_ids] > 0].sort().values
    columns = torch.full((model.config.vocab_size,), -1)  # of the head; -1: it has not the token
    columns[token_ids] = torch.arange(len(token_ids))
    layers = model.config.num_hidden_layers
    config = head_config(model, len(token_ids), [1, layers // 2 - 1, layers - 4])
    head = Eagle3Head(config)
    head.lm_head.weight.data.copy_(model.lm_head.weight[token_ids])
    head.norm.weight.data.copy_(model.model.norm.weight)

    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, betas=(0.9, 0.95))
    smooth, step, half = None, 0, BATCH // 2
    while (spent := time.monotonic() - begin) < options.minutes * 60:
        for group in optimizer.param_groups:  # down to a tenth at the end
            group["lr"] = 1e-3 * (1 - 0.9 * spent / (options.minutes * 60))
        batch = texts[step // 2 % len(texts)][step % 2 * half:][:half]
        loss, right = loss_of(head, model, batch, columns)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        smooth = right if smooth is None else 0.95 * smooth + 0.05 * right
        step += 1
        if step % 20 == 0:
            print(f"{spent:.0f} s, step {step}: loss {loss:.2f}, the first guess right in "
                  f"{100 * smooth:.0f} %", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    write_config(options.output, config)
    save_file(head_tensors(head, token_ids), options.output / "model.safetensors")


if __name__ == "__main__":
    main()
