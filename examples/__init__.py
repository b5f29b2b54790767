"""Programs to read, run and start from. The page: docs/examples/README.md.

Python imports this before anything else of an example, so that a missing package is reported in one line, too; a
program that merely imports an example keeps its own way to tell errors.
"""

import sys

from examples import troubles

if sys.argv[:1] == ["-m"]:  # so it is while Python looks for the module of `python -m`
    troubles.tell_in_one_line()
