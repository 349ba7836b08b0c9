"""Skip space, breadth search and its Optuna ledger."""
