"""A system that changes what it decides by, and what that is worth on unseen trainings."""
