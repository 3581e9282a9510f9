"""Check style, types and behaviour: `python -m tests`. Arguments go to pytest."""

import subprocess
import sys

CHECKS = (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"], ["pytest", *sys.argv[1:]])

sys.exit(max(subprocess.run([sys.executable, "-m", *check]).returncode for check in CHECKS))
