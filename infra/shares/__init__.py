"""Shares of a card: exact fractions and millionths of it. Pure: no Django."""
