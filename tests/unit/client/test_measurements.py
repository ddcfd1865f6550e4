"""The last known values of each task."""

from __future__ import annotations

from howdah.client.measurements import Measurement, last


def test_the_newest_attempts_last_known_values_are_shown() -> None:
    def one(time: float, attempt: int = 1, **fields: float) -> Measurement:
        values = {name: fields.pop(name) for name in ("loss", "accuracy") if name in fields}
        return Measurement(task="worker:0", attempt=attempt, time=time, values=values, **fields)

    first, second = one(1.0, loss=0.9, cpu=1.5), one(2.0, accuracy=0.4, rss_mb=12.0)
    (known,) = last([first, second])
    assert known == one(2.0, loss=0.9, accuracy=0.4, cpu=1.5, rss_mb=12.0)
    # Another attempt begins anew, and what an earlier one still had to say is late.
    (known,) = last([first, one(3.0, attempt=2, cpu=0.1), second])
    assert known == one(3.0, attempt=2, cpu=0.1)
    assert last([]) == []
