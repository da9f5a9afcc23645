"""The policies that can be chosen by name, beside the playbook."""
