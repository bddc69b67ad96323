"""`python -m rigidgrad` is the command line."""

import sys

from rigidgrad.cli import main

sys.exit(main())
