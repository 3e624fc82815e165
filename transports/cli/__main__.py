"""``python -m transports.cli`` is ``penstock``."""

import sys

from transports.cli import main

sys.exit(main())
