"""Pages of usage and money."""
