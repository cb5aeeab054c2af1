"""Make a Llama chat model with random weights, offline.

    make_model.py DIRECTORY [--hidden 64] [--layers 2] [--heads 2]

Runs in the interpreter that vLLM is installed for, which has tokenizers, transformers and torch.
What the model says is nonsense; how long it takes, and what the engine says about it, is not.
"""

from __future__ import annotations

import argparse
import importlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VOCABULARY = 4096
CONTEXT_TOKENS = 32_768
SPECIAL = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}\
{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""


def texts() -> Iterator[str]:
    """The standard library's own source: text that every machine has, and always the same."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        yield path.read_text(encoding="utf-8", errors="replace")


def tokenizer() -> Any:
    """A byte-level BPE tokenizer with a template for chats."""
    # By name: neither is installed where the types are checked.
    tokenizers = importlib.import_module("tokenizers")
    transformers = importlib.import_module("transformers")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts(), trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="<|im_end|>",
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def main(directory: str, *, hidden: int, layers: int, heads: int) -> None:
    """Write tokenizer and weights into the directory.

    Args:
        directory: where to.
        hidden: the model's width.
        layers: its depth.
        heads: of attention in each layer; vLLM's on CPU takes widths of 32 and more for each.
    """
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    words = tokenizer()
    ids = {
        f"{kind}_token_id": words.convert_tokens_to_ids(token)
        for kind, token in (("pad", "<pad>"), ("bos", "<s>"), ("eos", "<|im_end|>"))
    }
    shape = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=CONTEXT_TOKENS,
        dtype="bfloat16",
        **ids,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(shape).to(torch.bfloat16)
    model.generation_config = transformers.GenerationConfig(**ids)
    model.save_pretrained(directory)
    words.save_pretrained(directory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a Llama chat model with random weights.")
    parser.add_argument("directory")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2)
    main(**vars(parser.parse_args()))
