"""The library's own contract for application recorders, run on the ledger's."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import TestCase

from eventsourcing.tests import persistence

from ledger.opening import open_ledger
from ledger.paths import LedgerPaths
from ledger.sqlite import SignedSQLiteRecorder

if TYPE_CHECKING:
    _Contract = persistence.ApplicationRecorderTestCase[SignedSQLiteRecorder]
else:
    _Contract = persistence.ApplicationRecorderTestCase


class TestSignedSQLiteRecorder(_Contract, TestCase):
    """Unmodified but for the way in which a recorder is made."""

    def create_recorder(self) -> SignedSQLiteRecorder:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        database, signer = open_ledger(LedgerPaths(Path(folder.name)), passphrase=None)
        self.addCleanup(database.close)
        return SignedSQLiteRecorder(database, signer=signer)
