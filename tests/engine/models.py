"""Builders of tiny random models and of tokenizers: no network, the same for the same seed.

Every call returns fresh objects, so a test may change what it gets.
"""

from __future__ import annotations

import json
import string
import tempfile
from io import BytesIO
from pathlib import Path

import sentencepiece
import torch
from gguf import MODEL_ARCH, GGUFWriter, TokenType, get_tensor_name_map
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import (
    ByT5Tokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

CORPUS = (
    "The capital of France is Paris, and the capital of Japan is Tokyo.",
    "def hello(name):\n\treturn f'Hello, {name}!'  # two  spaces",
    'user assistant system {"key": [1, 2.5, null], "other": "value"}',
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "吾輩は猫である。名前はまだ無い。どこで生れたか、とんと見当がつかぬ。",
    "今天天气很好，我们去公园散步吧。你叫什么名字？",
    "다람쥐 헌 쳇바퀴에 타고파. 안녕하세요, 반갑습니다.",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "صباح الخير، كيف حالك اليوم؟ שלום עולם",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "Ünïcödé: naïve café, Straße, Ελληνικά, Tiếng Việt",
    "👋🏽 👩‍👩‍👧‍👦 🇫🇷 😀😀 🎉 ¡olé! $5 and $6, x² ≤ ∑ π",
)


def byte_tokenizer(vocab_size: int = 600) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with a ChatML template; it can spell any text."""
    core = Tokenizer(BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        CORPUS,
        BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END_OF_TEXT,
        extra_special_tokens=[TURN_START, TURN_END],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def sentencepiece_tokenizer(vocab_size: int = 500) -> SentencePieceBackend:
    """Return a tokenizer without a Rust core, as old sentencepiece models have; it writes a space as `▁`."""
    trained = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((*CORPUS, string.printable.strip())),
        model_writer=trained,
        model_type="bpe",
        vocab_size=vocab_size,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=[TURN_START, TURN_END],
        minloglevel=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.model"
        file.write_bytes(trained.getvalue())
        tokenizer = SentencePieceBackend(
            vocab_file=str(file),
            unk_token="<unk>",
            bos_token="<s>",
            eos_token="</s>",
            extra_special_tokens=[TURN_START, TURN_END],
        )
    tokenizer.chat_template = CHATML
    return tokenizer


def tiny_llama(seed: int = 0, **config: object) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Return a random Llama with two end tokens, and its byte-level tokenizer. `config` goes over LlamaConfig."""
    tokenizer = byte_tokenizer()
    return llama_for(tokenizer, seed, **config), tokenizer


def llama_for(tokenizer: PreTrainedTokenizerBase, seed: int = 0, **config: object) -> LlamaForCausalLM:
    """Return a random Llama that speaks `tokenizer`'s vocabulary; it ends at the text's and at the turn's end."""
    fields: dict[str, object] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**{**fields, **config})).eval()
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(TURN_END)]
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=ends[0])
    return model


def tiny_t5(seed: int = 0) -> tuple[T5ForConditionalGeneration, ByT5Tokenizer]:
    """Return a random encoder-decoder, and a tokenizer of plain bytes without a Rust core."""
    tokenizer = ByT5Tokenizer()
    config = T5Config(
        vocab_size=384,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = T5ForConditionalGeneration(config).eval()
    return model, tokenizer


def save_gguf(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, file: Path, arch: str = "llama") -> None:
    """Write `model`, in its own precision, and its byte-level tokenizer as llama.cpp's converter does."""
    config, writer = model.config, GGUFWriter(str(file), arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)

    core = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if t in SPECIAL_TOKENS else TokenType.NORMAL for t in tokens])
    writer.add_token_merges([" ".join(pair) for pair in core["merges"]])
    writer.add_eos_token_id(tokenizer.convert_tokens_to_ids(TURN_END))
    writer.add_bos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(tokenizer.chat_template)

    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        for part, count in heads.items():
            if f"{part}.weight" in name:  # llama.cpp turns pairs of neighbours, transformers turns two halves
                tensor = tensor.view(count, 2, -1, config.hidden_size).transpose(1, 2).reshape(tensor.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), tensor.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
