"""Who decides: the playbook, a language model, both, a person, a record of decisions, or nobody."""
