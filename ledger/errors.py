"""Errors of the ledger, under one root.

Those that the eventsourcing library expects by its own names are both.
Trust: messages may quote a path or an index, never bytes of an entry.
"""

from eventsourcing.persistence import IntegrityError, NotSupportedError, OperationalError


class LedgerError(Exception):
    """Anything that the ledger refuses or cannot do; the message says what to do next."""


class EncodingError(LedgerError):
    """A value that the format cannot hold."""


class ForbiddenError(LedgerError):
    """The rules of a ledger's notary do not let this user do that."""


class RulesError(LedgerError):
    """A notary's rules that cannot be read or understood."""


class PrivilegeError(LedgerError):
    """A process that cannot become the user that it should run as."""


class UnknownEventError(LedgerError):
    """An event name, class or schema version that the registry does not know."""


class AuthorityError(LedgerError):
    """An event that no verifier would accept: by a key that is not in force, or beyond its role."""


class ConflictError(LedgerError, IntegrityError):
    """Somebody else has appended to this stream: load it again and retry."""


class StorageError(LedgerError, OperationalError):
    """The file cannot be read or written; a batch is there whole or not at all."""


class ReadOnlyError(StorageError):
    """A ledger without its private key can be read and verified, not appended to."""


class UnsupportedError(LedgerError, NotSupportedError):
    """A facility of the library that a ledger does not offer, on purpose."""


class KeyFileError(LedgerError):
    """A key that is missing, unprotected, unreadable or another ledger's."""


class PassphraseError(KeyFileError):
    """A key file whose passphrase is missing, wrong, or one too many."""


class BundleError(LedgerError):
    """A folder into which, or a ledger out of which, no bundle can be made."""


class KeptHeadError(LedgerError):
    """A kept tree head that cannot be read, which says nothing about the ledger."""


class QuorumFileError(LedgerError):
    """A policy file that cannot be read, which says nothing about the ledger."""


class MemoryFileError(LedgerError):
    """A remembered tree head that cannot be read, which says nothing about the ledger."""


class VerificationError(LedgerError):
    """The ledger is not what it claims to be; trying again will not help.

    `index` is the first bad entry, or None if the fault is not at one entry.
    """

    def __init__(self, message: str, *, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class MalformedError(VerificationError):
    """Bytes that do not follow the format."""


class LinkError(VerificationError):
    """An entry that does not continue the one before it."""


class SignatureError(VerificationError):
    """A tree head or statement without a valid signature by the expected key."""


class InclusionError(VerificationError):
    """A proof that does not show its entry to be in the tree."""


class ConsistencyError(VerificationError):
    """Entries, tree heads, columns or a kept head that contradict each other."""


class ExchangedError(VerificationError):
    """A place in which this verifier knew a ledger with another key."""


class EvidenceError(VerificationError):
    """A file that does not show what evidence has to show."""


class QuorumError(VerificationError):
    """A tree head that too few of the trusted witnesses have cosigned."""


class ContradictionError(ConsistencyError):
    """A ledger that is behind or beside a tree head that somebody kept; `kept` is its note."""

    def __init__(self, message: str, *, kept: str, index: int | None = None) -> None:
        super().__init__(message, index=index)
        self.kept = kept


class BlobError(VerificationError):
    """A blob whose content is not what its name says."""
