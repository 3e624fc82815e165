"""Runs ``penstock`` as ``python -m transports.cli``."""

import sys

from transports.cli import main

sys.exit(main())
