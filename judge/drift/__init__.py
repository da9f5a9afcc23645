"""Whether a line becomes worse although every change passed."""
