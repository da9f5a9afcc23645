"""Studies: many short trainings, compared. `python -m proctor.studies` lists them."""
