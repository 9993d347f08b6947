"""REST API of people and tokens."""
