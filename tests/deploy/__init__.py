"""How the portal is installed and upgraded: chart, compose file, settings, databases of former versions."""
