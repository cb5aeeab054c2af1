"""Make a small Llama chat model with random weights: `make_model.py DIRECTORY`, offline.

Runs in the interpreter that vLLM is installed for, which has tokenizers, transformers and torch.
What the model says is nonsense; how long it takes, and what the engine says about it, is not.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HIDDEN = 64
LAYERS = 2
# hidden / heads is 32, the smallest head that vLLM's attention on CPU takes.
HEADS = 2
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


def main(directory: str) -> None:
    """Write tokenizer and weights into the directory."""
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    words = tokenizer()
    ids = {
        f"{kind}_token_id": words.convert_tokens_to_ids(token)
        for kind, token in (("pad", "<pad>"), ("bos", "<s>"), ("eos", "<|im_end|>"))
    }
    shape = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=HIDDEN,
        intermediate_size=4 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
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
    main(sys.argv[1])
