"""Files on disk: whole sets replaced at once, locks, journals, recovery after a kill."""
