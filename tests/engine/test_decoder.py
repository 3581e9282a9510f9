"""The joined pieces of a decoded sequence equal the decode of the whole, at once and in every script."""

import random

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from transformers import PreTrainedTokenizerFast

from chat.engine.decoder import IncrementalDecoder
from tests.engine.models import byte_tokenizer, sentencepiece_tokenizer

TEXTS = [
    "Hello world! It is 5 o'clock, isn't it?",
    "吾輩は猫である。名前はまだ無い、と彼は言った。",
    "เป็นมนุษย์สุดประเสริฐ",
    "Съешь же ещё этих мягких булок",
    "👋🏽 👩‍👩‍👧‍👦 🇫🇷 😀😀🎉",
    '{"key": [1, 2.5], "text": "a\\tb"}\n\tindented\n\n  two  spaces ',
    "שלום עולם مرحبا",
    "नमस्ते दुनिया",
]


def byte_fallback_tokenizer():
    """A sentencepiece-like tokenizer with a Rust core: `▁` for a space, a token a byte for unknown characters."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(33, 127)), "▁Hello", "▁world"]
    core = Tokenizer(
        BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    core.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", clean_up_tokenization_spaces=False)


def cleaning_tokenizer():
    """A tokenizer whose decode takes spaces out before marks, so that a later token shortens an earlier text."""
    words = ["do", "n't", "it", "'s", "well", ",", ".", "?", "'", "we", "'re", "Hello", "n", "x"]
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="x"))
    core.decoder = decoders.WordPiece(cleanup=False)
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="x", clean_up_tokenization_spaces=True)


TOKENIZERS = {
    "byte-level": byte_tokenizer,
    "byte-fallback": byte_fallback_tokenizer,
    "no Rust core": sentencepiece_tokenizer,
}


def pieces_of(tokenizer, ids, context=()):
    decoder = IncrementalDecoder(tokenizer, context)
    return [*(decoder.feed(id_) for id_ in ids), decoder.finish()]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_decode_of_all_ids_without_a_half_character(name, text):
    """S6 S8"""
    tokenizer = TOKENIZERS[name]()
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = pieces_of(tokenizer, ids)
    whole = tokenizer.decode(ids)
    assert "".join(pieces) == whole
    if "\ufffd" not in whole:
        assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", TEXTS)
def test_every_character_is_out_with_the_token_that_completes_it(name, text):
    """S5: no text waits for a space, a newline or the end."""
    tokenizer = TOKENIZERS[name]()
    ids = tokenizer.encode(text, add_special_tokens=False)
    decoder, out = IncrementalDecoder(tokenizer), ""
    for count, id_ in enumerate(ids, 1):
        out += decoder.feed(id_)
        so_far = tokenizer.decode(ids[:count])
        if "\ufffd" not in so_far:
            assert out == so_far


def test_text_before_a_half_character_does_not_wait_for_it():
    """S5"""
    tokenizer = byte_tokenizer()
    vocabulary = tokenizer.get_vocab()
    # Ġ is a space and ð the first byte of an emoji in the byte-level alphabet.
    decoder = IncrementalDecoder(tokenizer)
    assert decoder.feed(vocabulary["a"]) == "a"
    assert decoder.feed(vocabulary["ð"]) == ""


def test_a_length_limit_inside_a_character_shows_it_as_a_replacement_character():
    """S7"""
    tokenizer = byte_tokenizer()
    ids = [tokenizer.get_vocab()[letter] for letter in ("a", "ð", "Ł")]
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids) == "a\ufffd"


def test_a_cut_character_does_not_spoil_whole_ones_before_it():
    """S7: a byte-fallback decode of all ids would turn the whole run of bytes into U+FFFD."""
    tokenizer = byte_fallback_tokenizer()
    ids = tokenizer.convert_tokens_to_ids([f"<0x{byte:02X}>" for byte in "😀😀".encode()])
    assert "".join(pieces_of(tokenizer, ids)) == "😀😀"
    assert "".join(pieces_of(tokenizer, ids[:5])) == "😀\ufffd"


def test_a_replacement_character_that_the_model_means_is_kept():
    """S6: deleting U+FFFD would be wrong."""
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode("a \ufffd b \ufffd", add_special_tokens=False)
    assert "".join(pieces_of(tokenizer, ids)) == "a \ufffd b \ufffd"


def test_spaces_that_decoding_cleans_up_lose_no_character():
    """S9"""
    tokenizer = cleaning_tokenizer()
    rng = random.Random(9)
    for _ in range(200):
        # Two quotes in a row are left out: what their clean-up gives depends on all quotes before them.
        ids = [id_ for _ in range(6) for id_ in (rng.randrange(len(tokenizer)), rng.randrange(8))]
        assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_any_sequence_of_tokens_streams_as_it_decodes(name):
    """S6 S8: random ids, half characters and all."""
    tokenizer, rng = TOKENIZERS[name](), random.Random(1)
    for _ in range(200):
        ids = [rng.randrange(3, len(tokenizer)) for _ in range(20)]
        whole = tokenizer.decode(ids)
        if "\ufffd" not in whole or name == "byte-level":
            assert "".join(pieces_of(tokenizer, ids)) == whole


def test_a_continued_text_keeps_the_space_before_its_next_word():
    """S8 S11: a decode of the new token alone would drop it."""
    tokenizer = byte_fallback_tokenizer()
    hello, world = tokenizer.convert_tokens_to_ids(["▁Hello", "▁world"])
    assert "".join(pieces_of(tokenizer, [world], context=[hello])) == " world"


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_cost_of_a_token_does_not_grow_with_the_reply(name, monkeypatch):
    """S10: 4,000 tokens without a newline, and 4,000 that are no characters at all."""
    tokenizer = TOKENIZERS[name]()
    decoded = 0
    decode = tokenizer.decode

    def count(ids, **kwargs):
        nonlocal decoded
        decoded += len(ids)
        return decode(ids, **kwargs)

    monkeypatch.setattr(tokenizer, "decode", count)
    vocabulary = tokenizer.get_vocab()
    half = vocabulary.get("ð", vocabulary.get("<0xF0>", 5))
    for id_, ids_a_token in ((vocabulary["a"], 4), (half, 40)):
        decoded = 0
        pieces_of(tokenizer, [id_] * 4000)
        assert decoded <= ids_a_token * 4000
