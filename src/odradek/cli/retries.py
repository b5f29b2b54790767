"""Commands that run until Ctrl-C, and connect again when the cluster goes away."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.cli.connect import Target, unreachable
from odradek.cli.errors import FAILED, CliError
from odradek.cli.kafka_client import ClientErrors, failed
from odradek.cli.output import say_on_stderr

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

# Between two tries to connect.
RECONNECT_S = (1.0, 2.0, 5.0, 10.0, 30.0)


@contextmanager
def until_stopped() -> Iterator[None]:
    """End at Ctrl-C or SIGTERM, with a line."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        # The open transaction is aborted: `read_committed` consumers do not wait for its timeout.
        say_on_stderr("stopped; the next start continues here")
    finally:
        signal.signal(signal.SIGTERM, before)


class Retries:
    """Decides after which errors a transactional command connects again, and when.

    Args:
        what: a name of the command, as in "another merge named orders".
        errors: that the client reported.

    Attributes:
        was_connected: whether the command has worked before; else each error is final.
    """

    def __init__(self, where: Target, what: str, errors: ClientErrors) -> None:
        self._where = where
        self._what = what
        self._errors = errors
        self._tries = 0
        self._began_s = time.monotonic()
        self.was_connected = False

    def report_failure(self, error: KafkaException | TimeoutError) -> None:
        """Print why the command connects again. Raises CliError where that does not help."""
        if isinstance(error, TimeoutError):
            if not self.was_connected:
                raise unreachable(self._where, f"cannot connect to {self._where.bootstrap}") from None
            reason = ""
        else:
            self._raise_if_final(error)
            reason = f": {error.args[0].str()}"
        say_on_stderr(f"the cluster does not answer{reason}; trying again")

    def wait(self) -> None:
        """Sleep before the next try, for longer after each one that fails at once."""
        if time.monotonic() - self._began_s > 2 * RECONNECT_S[-1]:
            self._tries = 0
        time.sleep(RECONNECT_S[min(self._tries, len(RECONNECT_S) - 1)])
        self._tries += 1
        self._began_s = time.monotonic()

    def _raise_if_final(self, error: KafkaException) -> None:
        from confluent_kafka import KafkaError

        reason = error.args[0]
        if reason.code() in (KafkaError._FENCED, KafkaError._FATAL) or "fenced" in reason.str().lower():
            text = (
                f"another {self._what} has started and fenced this one, or a transaction took longer than"
                " transaction.max.timeout.ms of the brokers"
            )
            raise CliError(text, code=FAILED) from None
        is_away = reason.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
        if not self.was_connected or not (is_away or reason.retriable() or reason.txn_requires_abort()):
            raise failed(error, self._where, self._errors) from None
