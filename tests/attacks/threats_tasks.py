"""Tasks whose code deceives: what each does, and the step of the audit that rejects it.

Their attacks train models, so they are in the slow suite: tests/proctor/runs/test_task_attacks.py.
"""

from dataclasses import dataclass

__all__ = ["SECTION", "TASK_THREATS", "TaskThreat"]

BEFORE = "before the run"


@dataclass(frozen=True)
class TaskThreat:
    """One attack; `step` is None where nothing notices it."""

    name: str
    test: str  # in tests/proctor/runs/test_task_attacks.py
    step: str | None = "probe"

    @property
    def row(self) -> str:
        """The line of the page."""
        return f"- {self.step or '-'}: {self.name.removeprefix('task: ')}"


TASK_THREATS = (
    TaskThreat(
        "task: the model knows the test labels",
        "test_model_that_knows_the_test_labels_is_rejected_by_another_draw",
    ),
    TaskThreat(
        "task: the model knows half of the test part",
        "test_model_that_knows_the_first_half_of_the_test_part_is_rejected",
    ),
    TaskThreat(
        "task: the model answers unknown examples so that two draws cannot be compared",
        "test_model_that_spoils_the_comparison_of_two_draws_is_rejected",
    ),
    TaskThreat(
        "task: metrics() spoils the comparison of two draws: other values for few examples, or "
        "huge ones",
        "test_metrics_that_spoil_the_comparison_of_two_draws_are_rejected",
    ),
    TaskThreat(
        "task: metrics() lies of one part while the labels of another cannot be checked",
        "test_labels_of_another_type_leave_no_other_part_unchecked",
    ),
    TaskThreat(
        "task: metrics() replaces what the accuracy is computed with",
        "test_patched_metrics_are_rejected",
    ),
    TaskThreat(
        "task: the code changes the scores that Proctor measures while it trains",
        "test_measurements_patched_while_training_are_rejected",
    ),
    TaskThreat(
        "task: test examples are in the train part",
        "test_training_on_test_rows_is_refused_before_the_run",
        BEFORE,
    ),
    TaskThreat(
        "task: data() reads the test part's folder",
        "test_data_folder_of_the_test_part_is_closed_to_data",
        BEFORE,
    ),
    TaskThreat(
        "task: data() reads the test part's folder through a link",
        "test_links_lead_data_to_no_test_part",
        BEFORE,
    ),
    TaskThreat(
        "task: the code gives other values in each training",
        "test_task_that_is_not_repeatable_is_named",
    ),
    TaskThreat(
        "task: data() gives other examples in each run",
        "test_data_that_changes_from_run_to_run_is_named",
    ),
    TaskThreat(
        "task: the owner records better values than the task gives",
        "test_record_that_the_task_does_not_give_is_told_from_one_that_is_not_repeatable",
    ),
    TaskThreat(
        "task: the owner hands in another configuration",
        "test_config_beside_the_record_is_rejected",
        "deliverables",
    ),
    TaskThreat(
        "task: the code reports another train loss, alike in each training",
        "test_train_loss_that_is_changed_alike_in_each_training_is_not_noticed",
        None,
    ),
)

_ABOUT = """\
## A task whose code deceives the judge

The owner of a [task](tasks.md) writes the code that is trained. `pytest -m slow
tests/proctor/runs/test_task_attacks.py` carries out these attacks, with honest controls. The first
word is the step of the audit that rejects the run; *before the run*: `proctor run` refuses the
task.
"""
_OPEN = """\
The last is not detected: the train loss is measured in the process that runs the task's code. Rules
that read it can be kept silent or made to fire, so the process score can be wrong; the accuracy is
not concerned. `proctor judge` prints that the train loss was not checked. Read the task's file,
which is on record. [What the judge does not check](tasks.md#what-the-judge-does-not-check).
"""
SECTION = "\n".join([_ABOUT, *(threat.row for threat in TASK_THREATS), "", _OPEN])
