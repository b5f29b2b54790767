"""Packages that a feature needs and a plain query does not: extras of this distribution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_odradek.errors import OptionError, one_line


@contextmanager
def needing(extra: str, feature: str) -> Iterator[None]:
    """For imports: raise OptionError, which says what to install, where a package of the extra is missing."""
    try:
        yield
    except ImportError as error:
        raise OptionError(
            f'{feature} needs a package that is missing ({one_line(error)}): pip install "odradek[{extra}]"'
        ) from None
