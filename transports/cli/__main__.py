"""``python -m transports.cli`` is ``penstock``."""

import sys

from transports.cli.command import main

sys.exit(main())
