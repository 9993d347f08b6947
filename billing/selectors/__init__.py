"""Reads for pages, exports and the close. Figures stay exact until something is drawn up."""
