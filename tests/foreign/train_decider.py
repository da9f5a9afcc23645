"""Trains a small language model on exported decisions, from random weights, for any server.

Run by the Python of the foreign environment: `train_decider.py FOLDER FILE...` learns from files
that `proctor export data --kind sft` wrote, and writes FOLDER/decider.gguf for llama.cpp and
FOLDER/decider/ for transformers. The model is a Llama with half a million parameters. It learns to
predict each next token of a conversation; the tokens of answers count ten times as much as those of
the situations, which it never has to write.

Shapes: B conversations, T tokens, V tokens in the vocabulary.
"""

import argparse
import json
import math
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from random_models import END, START, write_gguf, write_transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 768  # tokens
CONTEXT = 4_096  # tokens
WIDTH, LAYERS, HEADS, INNER = 96, 3, 3, 256
BATCH = 4  # conversations
RATE, WARM_UP, DECAY = 2e-3, 30, 0.05  # learning rate, steps until it is reached, weight decay
PROMPT_WEIGHT = 0.1  # of a token of a situation; a token of an answer weighs 1
IGNORED = -100  # marks padding
FRACTION = re.compile(r"\d+\.\d+|\d+(?=e[+-]\d)")  # without its exponent
Message = dict[str, str]


@dataclass(frozen=True)
class Conversation:
    """A situation and its answer as tokens."""

    tokens: list[int]
    asked: int  # how many of them are the situation


def read_examples(files: Sequence[Path]) -> list[list[Message]]:
    """Return the messages of each example, the answer last."""
    return [
        json.loads(line)["messages"] for file in files for line in file.read_text().splitlines()
    ]


def learn_tokens(texts: Sequence[str]) -> Tokenizer:
    """Return a byte-level tokenizer in which every digit is a token: numbers have to be copied."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def with_other_digits(messages: Sequence[Message], draw: random.Random) -> list[Message]:
    """Return a conversation with the digits 1 to 9 of its fractions exchanged, the same throughout.

    Exponents, counts and zeros stay. A number that is copied stays a copy: a model that sees each
    situation with many digits has to learn to copy, as it cannot learn the numbers by heart.
    """
    digits = "".join(draw.sample("123456789", 9))
    others = str.maketrans("123456789", digits)
    return [
        {**one, "content": FRACTION.sub(lambda found: found[0].translate(others), one["content"])}
        for one in messages
    ]


def encode(tokenizer: Tokenizer, messages: Sequence[Message]) -> Conversation:
    """Return a conversation's tokens, in the words of the chat template that servers apply."""
    *asked, answer = messages
    before = "".join(f"{START}{one['role']}\n{one['content']}{END}\n" for one in asked)
    prompt = tokenizer.encode(f"{before}{START}assistant\n").ids
    said = tokenizer.encode(f"{answer['content']}{END}").ids
    return Conversation(prompt + said, len(prompt))


def batches(
    tokenizer: Tokenizer, examples: Sequence[Sequence[Message]], draw: random.Random
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield inputs, targets and weights, each (B, T), over and over; B is about as long each."""
    while True:
        found = [encode(tokenizer, with_other_digits(one, draw)) for one in examples]
        order = sorted(found, key=lambda one: len(one.tokens) + draw.uniform(0, 100))
        groups = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        draw.shuffle(groups)
        for group in groups:
            longest = max(len(one.tokens) for one in group)
            tokens = torch.full((len(group), longest), IGNORED)
            weights = torch.zeros(len(group), longest)
            for row, one in enumerate(group):
                tokens[row, : len(one.tokens)] = torch.tensor(one.tokens)
                weights[row, : one.asked] = PROMPT_WEIGHT
                weights[row, one.asked : len(one.tokens)] = 1.0
            # Padding is at the end, where a causal model has no effect on what comes before.
            yield tokens[:, :-1].clamp(min=0), tokens[:, 1:], weights[:, 1:]


def rate_at(step: int, steps: int) -> float:
    """Return the share of the learning rate: a linear rise, then half a cosine."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP)))


def train(
    examples: Sequence[Sequence[Message]], tokenizer: Tokenizer, steps: int
) -> LlamaForCausalLM:
    """Return a model that was trained on the examples from random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=CONTEXT,
        bos_token_id=tokenizer.token_to_id(START),
        eos_token_id=tokenizer.token_to_id(END),
    )
    model = LlamaForCausalLM(config)
    matrices = [each for each in model.parameters() if each.ndim > 1]
    vectors = [each for each in model.parameters() if each.ndim == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": DECAY},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=RATE,
        betas=(0.9, 0.95),
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, steps))
    supply, started = batches(tokenizer, examples, random.Random(0)), time.monotonic()
    for step in range(steps):
        tokens, targets, weights = next(supply)
        logits = model(input_ids=tokens).logits  # (B, T, V)
        losses = cross_entropy(logits.transpose(1, 2), targets, reduction="none")  # (B, T)
        loss = (losses * weights).sum() / weights.sum()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 25 == 24 or step == steps - 1:
            answers = losses.detach()[weights == 1.0].mean()
            passed = time.monotonic() - started
            print(f"step {step + 1}: answers {answers:.3f} nats, {passed:.0f} s", flush=True)
    return model.eval()


def main() -> None:
    """Learn from the files that are named, and write the model in both formats."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    examples = read_examples(options.files)
    tokenizer = learn_tokens([one["content"] for example in examples for one in example])
    lengths = sorted(len(encode(tokenizer, example).tokens) for example in examples)
    model = train(examples, tokenizer, options.steps)
    print(
        f"{len(examples)} examples of {lengths[0]} to {lengths[-1]} tokens, "
        f"{sum(each.numel() for each in model.parameters()):,} parameters"
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    write_transformers(options.folder / "decider", tokenizer, model)
    write_gguf(options.folder / "decider.gguf", tokenizer, model)


if __name__ == "__main__":
    main()
