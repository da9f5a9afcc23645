"""Training as an environment of Gymnasium: an agent answers the rules of live trainings."""
