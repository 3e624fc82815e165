"""``python -m transports.cli`` is ``penstock``."""

import sys

from transports.cli.main import main

sys.exit(main())
