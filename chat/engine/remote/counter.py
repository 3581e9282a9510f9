"""A prompt's tokens, by whoever can tell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from chat.engine.remote.body import create_prompt
from chat.engine.remote.server import Server
from chat.engine.thought_formats import TAGGED
from chat.types import ModelNotFound, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_LONGEST_OPENING = 40
_UNLIMITED = 10**9  # a tokenizer that knows no limit says 10**30


class TokenCounter:
    """Asks the server, or else a tokenizer of the given name, or else nobody."""

    def __init__(self, server: Server, tokenizer: str = "") -> None:
        """`tokenizer` is a hub id or a folder."""
        self._server, self._name = server, tokenizer
        self._tokenizer: PreTrainedTokenizerFast | None = None
        self._loading = asyncio.Lock()

    async def count(self, prompt: Prompt, model: str) -> int | None:
        """Return the number of tokens of a prompt, None if nobody can tell. Raises: ChatError."""
        if answer := await self._server.tokenize({"model": model, **create_prompt(prompt)}):
            return int(answer["count"])
        if not self._name:
            return None
        return await asyncio.to_thread(_count, await self._load(), prompt)

    async def opening(self, model: str) -> str:
        """Return the mark of a thought, and what follows it, that the model's template opens each reply with."""
        question: Prompt = [{"role": "user", "content": "?"}]
        body = {"model": model, **create_prompt(question), "add_generation_prompt": True, "return_token_strs": True}
        answer = await self._server.tokenize(body) or {}
        end = "".join(answer.get("token_strs") or ())[-_LONGEST_OPENING:].replace("Ċ", "\n")  # GPT-2's line end
        return next((end[end.find(mark) :] for mark in TAGGED.states["start"].marks if mark in end), "")

    async def window(self) -> int:
        """Return the window that the named tokenizer is made for, 0 if none is named or it does not say."""
        if not self._name:
            return 0
        length = (await self._load()).model_max_length
        return int(length) if length < _UNLIMITED else 0

    async def _load(self) -> PreTrainedTokenizerFast:
        async with self._loading:
            if self._tokenizer is None:
                self._tokenizer = await asyncio.to_thread(_read, self._name)
        return self._tokenizer


def _read(name: str) -> PreTrainedTokenizerFast:
    # Not AutoTokenizer, which imports torch.
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ModelNotFound(f"The tokenizer {name!r} cannot be loaded. Correct --tokenizer. {error}") from error
    return tokenizer


def _count(tokenizer: PreTrainedTokenizerFast, prompt: Prompt) -> int:
    if isinstance(prompt, str) or tokenizer.chat_template is None:
        text = prompt if isinstance(prompt, str) else "\n\n".join(message["content"] for message in prompt)
        return len(tokenizer.encode(text, verbose=False))
    messages = create_prompt(prompt)["messages"]
    encoded: Any = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
    return len(encoded["input_ids"])
