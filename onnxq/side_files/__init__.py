"""What the formats of files beside a model share."""
