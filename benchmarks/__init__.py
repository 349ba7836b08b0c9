"""Speed comparisons, their stored results, and the commands that make them."""
