"""Samples of cards → what each did in each hour, and where samples are missing. Pure: no Django, no HTTP."""

from infra.telemetry.gaps import Gap, gaps_of, interval_of
from infra.telemetry.hours import Figures, HourRow, Subject, Track, fold
from infra.telemetry.tracks import tracks_of_cards, tracks_of_hami

__all__ = [
    "Figures",
    "Gap",
    "HourRow",
    "Subject",
    "Track",
    "fold",
    "gaps_of",
    "interval_of",
    "tracks_of_cards",
    "tracks_of_hami",
]
