"""Charts as SVG, of values by epoch, by rule and by layer, of comparisons and of lines."""
