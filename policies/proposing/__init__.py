"""Who proposes changes of the system: a language model, the tuner, the adversary."""
