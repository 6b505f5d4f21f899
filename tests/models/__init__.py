"""What makes or finds models for tests."""
