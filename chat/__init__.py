"""Streaming chat with any Transformers model: page, terminal and HTTP API on one engine."""
