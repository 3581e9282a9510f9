"""Which engine answers with a loaded model."""

from __future__ import annotations

import logging

from chat.engine.batched import BatchedEngine
from chat.engine.batching_trial import CannotBatch
from chat.engine.direct import DirectEngine
from chat.engine.loading import LoadedModel
from chat.engine.mixed import MixedEngine
from chat.engine.pages import MOST_REQUESTS
from chat.settings import EngineSettings
from chat.types import Engine, OutOfMemory

logger = logging.getLogger(__name__)


def create_local_engine(loaded: LoadedModel, settings: EngineSettings) -> Engine:
    """Return the engine that the settings ask for; auto is one that batches if the model can be batched.

    Raises: CannotBatch, OutOfMemory.
    """
    if settings.engine == "direct":
        logger.info("One request is answered at a time, as --engine asks.")
        return DirectEngine(loaded, settings)
    try:
        batched = BatchedEngine(loaded, settings)
    except (CannotBatch, OutOfMemory) as error:
        if settings.engine == "batched":
            raise
        logger.info("One request is answered at a time. %s", error)
        return DirectEngine(loaded, settings)
    if settings.engine == "batched":
        logger.info("Up to %d requests are answered at once, as --engine asks.", MOST_REQUESTS)
        return batched
    logger.info("Up to %d requests are answered at once; those with a seed one at a time beside them.", MOST_REQUESTS)
    # A reply that must come out the same again goes on from no earlier turn.
    direct = DirectEngine(loaded, settings.model_copy(update={"cache_memory": 0}))
    return MixedEngine(batched, direct, loaded.info.defaults)
