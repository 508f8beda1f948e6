"""``python -m slurmgpu``."""

import sys

from slurmgpu.cli import main

sys.exit(main())
