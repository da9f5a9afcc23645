"""Folders, reports and lineages of a key holder who selects entries: each attack, and its test.

The attacks are carried out in tests/proctor/handover/test_selected_entries.py, and those on
lineages in tests/judge/lineage/test_lineage_attacks.py, with honest controls.
"""

from dataclasses import dataclass

__all__ = ["SECTION", "SELECTION_THREATS", "SelectionThreat"]

FOLDER, REPORT, LINEAGE = "folder", "report", "lineage"
_BOTH = (FOLDER, REPORT)
_ALL = (FOLDER, REPORT, LINEAGE)


@dataclass(frozen=True)
class SelectionThreat:
    """One attack: the kinds of file in which it is refused, and its name in the tests' tables."""

    name: str
    test: str
    kinds: tuple[str, ...] = _BOTH
    lineage_test: str = ""

    @property
    def row(self) -> str:
        """The line of the page."""
        codes = "".join("f" if kind in self.kinds else "." for kind in _ALL)
        return f"- `{codes}` {self.name}"


SELECTION_THREATS = (
    SelectionThreat(
        "the run gets other weights and another end after its verdict",
        "goes_on_to_another_end",
        (FOLDER,),
    ),
    SelectionThreat(
        "... only other weights, and no other end", "goes_on_with_other_weights", (FOLDER,)
    ),
    SelectionThreat("... calls to a model", "calls_after_its_verdict", (FOLDER,)),
    SelectionThreat("... and the end that was judged is left out", "hides_the_judged_end"),
    SelectionThreat(
        "a lineage shows an audit that does not count, of a run that went on or was judged again",
        "",
        (LINEAGE,),
        "test_audit_that_does_not_count_is_rejected",
    ),
    SelectionThreat("other files than the run handed in", "hands_over_other_weights", (FOLDER,)),
    SelectionThreat(
        "a run edited before the end whose hash the judge signed, with a gap in between",
        "edits_the_run_before_its_judged_end",
        _ALL,
        "test_decision_edited_under_a_genuine_audit_is_rejected",
    ),
    SelectionThreat(
        "other files than those that the judge names at its start",
        "replaces_the_judged_end",
        (FOLDER,),
    ),
    SelectionThreat(
        "other weights than those that the judge names in step 3",
        "judged_other_weights_in_step_3",
        (FOLDER,),
    ),
    SelectionThreat(
        "a judge granted by the ledger's key, though there is an operator",
        "own_judge_although_an_operator_exists",
        _ALL,
        "test_key_that_a_judge_lets_in_is_rejected",
    ),
    SelectionThreat(
        "... and the operator's grant left out",
        "own_judge_with_the_operator_left_out",
        _ALL,
        "test_key_event_left_out_is_rejected",
    ),
    SelectionThreat("an operator's key signs as a judge", "key_of_another_role"),
    SelectionThreat("a judge granted in another stream", "grant_in_another_stream", (FOLDER,)),
    SelectionThreat("a judge signs after its revocation", "judge_after_its_revocation"),
    SelectionThreat(
        "a judge's revocation left out before another event of the keys",
        "revocation_left_out",
        _ALL,
        "test_key_event_left_out_is_rejected",
    ),
    SelectionThreat(
        "the audit of a judge whose key was revoked since before",
        "revoked_judge_shown",
        (FOLDER, LINEAGE),
        "judged with a lost key",
    ),
    SelectionThreat("a rotation of the ledger's key left out", "rotation_left_out"),
    SelectionThreat(
        "an audit that nobody signed, though a judge has a key",
        "audit_that_nobody_signed",
        (FOLDER, LINEAGE),
        "judged by nobody",
    ),
    SelectionThreat(
        "... and the judges' grants left out",
        "unsigned_audit_with_the_judges_grant_left_out",
        _ALL,
        "test_key_event_left_out_is_rejected",
    ),
    SelectionThreat("an audit signed by the ledger's key", "audit_signed_by_the_ledger", (FOLDER,)),
    SelectionThreat("the audit of another run", "audit_of_another_run"),
    SelectionThreat(
        "a judge's words moved to another audit", "judges_words_moved_to_another_audit"
    ),
    SelectionThreat("a judge's scores after another start", "start_exchanged", (FOLDER,)),
    SelectionThreat("a step of the audit left out", "step_left_out"),
    SelectionThreat("an event of the run left out", "decision_left_out"),
    SelectionThreat("a proof twice", "proof_twice"),
    SelectionThreat("proofs in another order", "proofs_in_another_order"),
    SelectionThreat("two events with one place in a stream", "event_of_a_stream_twice"),
    SelectionThreat("the events of another run added", "entries_of_another_run_added", (FOLDER,)),
)

_ABOUT = """\
## Folders, reports and lineage files, made by a key holder who selects

The attacker has the ledger's private key, but no judge's, and hands over any entries as a model
(folder), a report or a lineage, made by a copy of the program without its checks.
`tests/proctor/handover/test_selected_entries.py` and `tests/judge/lineage/test_lineage_attacks.py`
carry these out. The three letters: folder, report, lineage; `.`: such a file has no such entry, or
shows nothing that depends on it. A report shows an audit that nobody signed, or of a run that went
on, as one that does not count.
"""
_OPEN = """\
Without any key, somebody can pad a genuine folder, exchange its files for pipes, links or a file of
a terabyte, or lay it beside a genuine ledger: all of it is refused, at once. A page of a folder
that does not follow from the events, signed by the publisher, is named as not checked, and the
verdict is not shown as trusted. What a file cannot show:

- What is left out at the end of a stream, such as a later revocation, and a whole audit. `proctor
  verify` says so, with the tree head and the date of its newest entry. Verify the ledger or a
  bundle.
- The parent of a fork left out whole of a report; it is named among what is not claimed. A lineage
  always says that a run continues another.
- A judge of the attacker's own in a ledger without an operator. `proctor verify --judge VKEY`
  refuses every judge but the one that you name; without it, no verdict is shown as trusted.
- Events left out of a folder or lineage in the form of an earlier version, if its audit is of such
  a version, too; and a run edited beside an audit of an earlier version, which names no root, if no
  entry beside its tree head is shown. The output says so, and the verdict is not trusted.
"""
SECTION = "\n".join([_ABOUT, *(each.row for each in SELECTION_THREATS), "", _OPEN])
