"""Install the Debian packages that the tests use and the machine lacks. Does nothing where they are there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PACKAGES = {"chromium": "chromium", "java": "default-jre-headless", "mvn": "maven"}
"""Command → Debian package."""


def main() -> int:
    """Exit status 1, with what to do, where a package is missing and can't be installed."""
    missing = [package for command, package in PACKAGES.items() if shutil.which(command) is None]
    if not missing:
        print("Nothing to install.")
        return 0
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"Install these with your package manager: {' '.join(missing)}", file=sys.stderr)
        return 1
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    print(f"Installed: {' '.join(missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
