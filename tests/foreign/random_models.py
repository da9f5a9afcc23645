"""Language models with random weights, for servers that load a model from disk.

Nobody trained them: what they answer is noise, in as much form as the server makes them keep. Their
tokens alone are learnt, from a folder of pages, so that a prompt is not much longer than for a
real model. Run by the Python of the foreign environment: `random_models.py FOLDER PAGES` writes
FOLDER/random.gguf for llama.cpp and FOLDER/random/ for transformers, the same at every call.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

START, END = "<|start|>", "<|end|>"
CONTEXT = 32_768  # tokens
LAYERS, WIDTH, HEADS, INNER = 2, 64, 4, 128
TEMPLATE = (
    "{% for message in messages %}"
    + START
    + "{{ message.role }}\n{{ message.content }}"
    + END
    + "\n"
    "{% endfor %}{% if add_generation_prompt %}" + START + "assistant\n{% endif %}"
)


def learn_tokens(pages: Path) -> Tokenizer:
    """Return a byte-level tokenizer of 1024 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=[START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(page) for page in sorted(pages.rglob("*.md"))], trainer)
    return tokenizer


def random_model(tokenizer: Tokenizer) -> LlamaForCausalLM:
    """Return an untrained model of the Llama architecture."""
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
    model.generation_config.do_sample = True  # else every answer to one prompt is the same noise
    return model


def write_transformers(folder: Path, tokenizer: Tokenizer, model: LlamaForCausalLM) -> None:
    """Write the model as `transformers serve` reads it."""
    model.save_pretrained(folder)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=START, eos_token=END)
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder)


def write_gguf(path: Path, tokenizer: Tokenizer, model: LlamaForCausalLM) -> None:
    """Write the model as llama.cpp reads it."""
    from gguf import GGUFWriter, TokenType  # noqa: PLC0415 - only where llama.cpp is

    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
    shape = model.config
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_attention_heads)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_rope_dimension_count(shape.hidden_size // shape.num_attention_heads)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [TokenType.CONTROL if token in (START, END) else TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges(token_merges(tokenizer))
    writer.add_bos_token_id(tokenizer.token_to_id(START))
    writer.add_eos_token_id(tokenizer.token_to_id(END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, weights in model.state_dict().items():
        rotated = name.endswith(("q_proj.weight", "k_proj.weight"))
        ordered = interleaved(weights, shape.num_attention_heads) if rotated else weights
        writer.add_tensor(gguf_name(name), ordered.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def token_merges(tokenizer: Tokenizer) -> list[str]:
    """Return the pairs that were joined into tokens, in order."""
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def interleaved(weights: torch.Tensor, heads: int) -> torch.Tensor:
    """Return the rows of a query's or a key's weights in the order of llama.cpp's rotation.

    It rotates neighbours; transformers rotates a row of a head's first half with one of its second.
    """
    rows, columns = weights.shape
    halves = weights.reshape(heads, 2, rows // heads // 2, columns)
    return halves.transpose(1, 2).reshape(rows, columns).contiguous()


def gguf_name(name: str) -> str:
    """Return llama.cpp's name of a tensor."""
    for theirs, ours in (
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("input_layernorm", "attn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ):
        name = name.replace(theirs, ours)
    return name


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    learnt = learn_tokens(Path(sys.argv[2]))
    untrained = random_model(learnt)
    write_transformers(target / "random", learnt, untrained)
    write_gguf(target / "random.gguf", learnt, untrained)
