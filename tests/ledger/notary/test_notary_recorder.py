"""The library's own contract for application recorders, run through a real notary."""

import os
from typing import TYPE_CHECKING
from unittest import TestCase

import pytest
from eventsourcing.tests import persistence
from notaries import open_folder, running_notary

from ledger.notary.client import NotaryClient
from ledger.notary.remote import RemoteRecorder

RULES = f'[[user]]\nuser = {os.geteuid()}\nappend = ["*"]\n'

if TYPE_CHECKING:
    _Contract = persistence.ApplicationRecorderTestCase[RemoteRecorder]
else:
    _Contract = persistence.ApplicationRecorderTestCase


class TestRemoteRecorder(_Contract, TestCase):
    """Unmodified but for the way in which a recorder is made, and when it is measured."""

    def create_recorder(self) -> RemoteRecorder:
        folder = self.enterContext(open_folder())
        notary = self.enterContext(running_notary(folder, RULES))
        client = NotaryClient(notary.socket)
        self.addCleanup(client.close)
        return RemoteRecorder(client)

    @pytest.mark.slow  # it measures, and asserts nothing that the others do not
    def test_performance(self) -> None:
        super().test_performance()
