"""``python -m howdah.coordinator <job directory>``"""

import sys

from howdah.coordinator.main import run_from_command_line

sys.exit(run_from_command_line())
