"""What is right of a decision, said by the judge's own copy of the rules; scenarios."""
