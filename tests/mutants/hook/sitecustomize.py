"""Loaded by every Python process of a run: modules whose code is in the run's folder come from there.

The files of the product stay as they are, so that code which reads the sources, as planted bugs do, finds its lines.
"""

import importlib.abc
import importlib.machinery
import marshal
import os
import sys
from pathlib import Path
from typing import Any


class _Changed(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        return marshal.loads((_folder / fullname).read_bytes())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if not (_folder / fullname).is_file():
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None
        spec.loader = _Changed(fullname, spec.origin)
        return spec


if "MUTANT_CODE" in os.environ:
    _folder = Path(os.environ["MUTANT_CODE"])
    sys.meta_path.insert(0, _Finder())
