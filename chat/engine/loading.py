"""Model and tokenizer from the settings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from chat.engine.starting import Report
from chat.settings import Settings
from chat.types import GenerationParams, ModelInfo, Progress


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to generate, its tokenizer, and what is to be known of both."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    info: ModelInfo


def load_model(settings: Settings, report: Report) -> LoadedModel:
    """Load what `settings.model` names, reporting progress. Raises: ModelLoadError."""
    report(Progress("loading", text="Loading the model"))
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    model = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32).eval()
    defaults = settings.params().over(GenerationParams(temperature=0.7, top_p=0.95))
    window = model.config.max_position_embeddings
    info = ModelInfo(
        settings.model, str(model.device), "float32", window, defaults, is_base=tokenizer.chat_template is None
    )
    return LoadedModel(model, tokenizer, info)
