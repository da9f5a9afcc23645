"""Where one training example comes from, and the file that proves it."""
