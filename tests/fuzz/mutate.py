"""Inputs made from good ones: fast, and the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

LONGEST = 4096
_NUMBERS = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff" * 8)


def inputs(
    seeds: Sequence[bytes], words: Sequence[bytes], count: int, seed: int
) -> Iterator[bytes]:
    """``count`` inputs: each a good one with one to eight changes. ``words`` are put in at times."""
    chance = random.Random(seed)
    pieces = (*_NUMBERS, *words)
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            _change(data, seeds, pieces, chance)
        yield bytes(data[:LONGEST])


def _change(
    data: bytearray, seeds: Sequence[bytes], pieces: Sequence[bytes], chance: random.Random
) -> None:
    at = chance.randrange(len(data) + 1)
    end = min(at + chance.choice((1, 2, 4, 16)), len(data))
    match chance.randrange(7):
        case 0:
            if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
        case 1:
            if at < len(data):
                data[at] = chance.randrange(256)
        case 2:
            del data[at:end]
        case 3:
            data[at:at] = data[at:end] * chance.choice((1, 2, 50))
        case 4:
            piece = chance.choice(pieces)
            data[at : at + (len(piece) if chance.random() < 0.5 else 0)] = piece
        case 5:
            other = chance.choice(seeds)
            data[at:] = other[chance.randrange(len(other) + 1) :]
        case _:
            del data[at:]
