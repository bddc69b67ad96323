"""Targets: each renders Programs in one language, and knows nothing of robots."""
