"""What forked processes have already: the imports that take seconds, and no rubbish to look for."""

# ruff: noqa: F401

import gc
from importlib import import_module

import torch._inductor.config  # torch imports it on its way to being deterministic

import judge.auditing.audit
import judge.confinement.worker
import monitor.task_worker
import proctor.cli.campaign_jobs
import proctor.cli.jobs
import proctor.cli.main
import proctor.runs.replay
from proctor.cli.main import COMMANDS

for module in COMMANDS.values():
    import_module(module)

gc.collect()
gc.freeze()  # or each process would look through all of this, and so copy it
