"""Lines of a start that say nothing to who reads them here: TensorFlow's to who has asked for no GPU,
TensorBoard's with an address that needs a secret, and a Ctrl-C that would stop the job.

No environment variable keeps them all away: some come before ``TF_CPP_MIN_LOG_LEVEL`` is read.
"""

from __future__ import annotations

import re

from howdah.client.following.log_lines import LogId

FIRST = 200
"""Lines of an attempt among which they are looked for: later ones are no part of a start."""

_LINE = re.compile(
    rb"""(?:
    (?: [IWE]\d{4}\ [\d:.]+\ +\d+\                                    # absl's beginning of a line
      | \d{4}-\d\d-\d\d\ [\d:.]+:\ [IWE]\ (?:[\w.-]+/)*                 # TensorFlow's own
    )(?: port\.cc:\d+\]\ oneDNN\ custom\ operations\ are\ on\.
      | cudart_stub\.cc:\d+\]\ Could\ not\ find\ cuda\ drivers
      | cpu_feature_guard\.cc:\d+\]\ This\ TensorFlow\ binary\ is\ optimized
      | computation_placer\.cc:\d+\]\ computation\ placer\ already\ registered
      | cuda_(?:dnn|fft|blas)\.cc:\d+\]\ Unable\ to\ register
      | cuda_(?:platform|driver)\.cc:\d+\]\ failed\ call\ to\ cuInit
      | cuda_diagnostics\.cc:\d+\]
      | py_utils\.cc:\d+\]\ TF-TRT\ Warning:
      | gpu_device\.cc:\d+\]\ Cannot\ dlopen\ some\ GPU\ libraries
    )
    | WARNING:\ All\ log\ messages\ before\ absl::InitializeLog\(\)\ is\ called\ are\ written\ to\ STDERR
    | To\ enable\ the\ following\ instructions:.*\ rebuild\ TensorFlow\ with\ the\ appropriate\ compiler\ flags
    | Skipping\ registering\ GPU\ devices\.\.\.
    | TensorBoard\ \d\S*\ at\ \S+\ \(Press\ CTRL\+C\ to\ quit\)
    )""",
    re.VERBOSE,
)


class StartupLines:
    """Leaves them out."""

    def __init__(self) -> None:
        self._seen: dict[LogId, int] = {}

    def others(self, stream: LogId, lines: list[bytes]) -> list[bytes]:
        """The next lines of an attempt's log, without those of a start."""
        seen = self._seen.get(stream, 0)
        self._seen[stream] = seen + len(lines)
        first = max(FIRST - seen, 0)
        return [line for line in lines[:first] if not _LINE.match(line)] + lines[first:]
