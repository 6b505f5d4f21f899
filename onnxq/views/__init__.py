"""Results as people see them: on a terminal, in a notebook. Types are known by name only."""
