"""`python -m tests.scenarios [--rewrite]`: run the scenario files, or write what they print now into them."""

from __future__ import annotations

import sys

from tests.scenarios.script import play
from tests.scenarios.test_scenario_files import FILES, words_of


def main() -> int:
    rewrite = "--rewrite" in sys.argv[1:]
    failed = 0
    for path in FILES:
        text, wrong = play(path.read_text(), words_of(path))
        failed += bool(wrong)
        print(f"{path.name}: {len(wrong)} steps {'rewritten' if rewrite else 'wrong'}" if wrong else f"{path.name}: ok")
        if rewrite:
            path.write_text(text)
        else:
            print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if failed and not rewrite else 0


if __name__ == "__main__":
    sys.exit(main())
