"""Studies: many short trainings, compared. `python docs/studies` lists them."""
