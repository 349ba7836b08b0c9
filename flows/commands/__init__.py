"""The verbs of the `specdec` command; loaded one at a time, when used."""
