"""Howdah from other programs' points of view. Each module needs that program, and nothing else does."""
