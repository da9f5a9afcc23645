"""The pages whose console blocks are run by tests/docs/test_snippets.py."""

PAGES = (
    "README.md",
    "docs/tutorial/first-run.md",
    "docs/how-to/bisect.md",
    "docs/how-to/change-the-system.md",
    "docs/how-to/evolve.md",
    "docs/how-to/hand-over-a-bundle.md",
    "docs/how-to/hand-over-a-model.md",
    "docs/how-to/keep-a-head.md",
    "docs/how-to/prove-an-event.md",
    "docs/how-to/put-a-repository-under-the-gauntlet.md",
    "docs/how-to/provoke-a-fault.md",
    "docs/how-to/roll-back.md",
    "docs/how-to/rotate-a-key.md",
    "docs/how-to/second-verifier.md",
    "docs/how-to/tune-a-prompt.md",
    "docs/how-to/watch-for-drift.md",
    "docs/how-to/watch-your-own-loop.md",
    "docs/how-to/witness.md",
)
SLOW = (
    "docs/tutorial/first-run.md",
    "docs/how-to/bisect.md",
    "docs/how-to/change-the-system.md",
    "docs/how-to/hand-over-a-model.md",
    "docs/how-to/keep-a-head.md",
    "docs/how-to/provoke-a-fault.md",
    "docs/how-to/rotate-a-key.md",
    "docs/how-to/tune-a-prompt.md",
    "docs/how-to/watch-for-drift.md",
    "docs/how-to/watch-your-own-loop.md",
)
