"""AI Factory Portal: the project (settings, addresses, processes) and what all apps share.

Nothing is imported here, so that pure modules below stay free of Django.
"""
