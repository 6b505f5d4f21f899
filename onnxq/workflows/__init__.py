"""The tasks of users: convert, lint, explain, inspect, export encodings."""
