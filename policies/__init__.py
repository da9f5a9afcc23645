"""Who decides: the playbook policy, one that does nothing, one that answers from a record."""
