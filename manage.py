#!/usr/bin/env python
"""Django's command line. The default profile is production; set DJANGO_SETTINGS_MODULE for another."""

import os
import sys


def main() -> None:
    """Run the command named on the command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.production")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        # The installation that `make demo` started has its settings; an installation by hand has them as AIF_*.
        sys.exit(
            f"{error}\nFor the instance on this machine: .venv/bin/python -m portal.cli manage {' '.join(sys.argv[1:])}"
        )


if __name__ == "__main__":
    main()
