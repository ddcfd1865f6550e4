"""The name by which agents that began before an upgrade start `howdah.storage.helper`."""

from __future__ import annotations

import sys

from howdah.storage import helper

if __name__ == "__main__":
    sys.exit(helper.main(["copy-log", *sys.argv[1:]]))
