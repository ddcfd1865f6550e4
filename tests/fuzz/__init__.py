"""Mutation fuzzing of every decoder of bytes that Howdah did not write itself."""
