"""Studies: many short trainings, compared. `python -m studies` lists them."""
