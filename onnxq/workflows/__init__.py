"""What users ask for: convert, lint, explain, inspect, export encodings."""
