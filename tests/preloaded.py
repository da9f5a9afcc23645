"""What forked processes have already: the imports that take seconds, and no rubbish to look for."""

# ruff: noqa: F401

import gc
from importlib import import_module

import torch._inductor.config  # torch imports it on its way to being deterministic

import judge.audit
import judge.child
import proctor.campaign_jobs
import proctor.cli
import proctor.jobs
import proctor.replay
from proctor.cli import COMMANDS

for module, _ in COMMANDS.values():
    import_module(module)

gc.collect()
gc.freeze()  # or each process would look through all of this, and so copy it
