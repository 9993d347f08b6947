"""``manage.py user_create NAME``: a local user, such as the first platform-admin."""

from __future__ import annotations

import getpass
import sys
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.models import User
from portal.accounts.services import user_create
from portal.kernel.actors import Actor
from portal.kernel.problems import Problem


class Command(BaseCommand):
    """Asks for the password on the terminal, or reads it from standard input; never from the command line."""

    help = "Make a local user."

    def add_arguments(self, parser: CommandParser) -> None:
        """The name, and what the user may do on the platform."""
        parser.add_argument("username")
        parser.add_argument(
            "--platform-role", default="", choices=[role for role in User.PlatformRole.values if role], help="optional"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the user."""
        if sys.stdin.isatty():
            password = getpass.getpass("Password: ")
            if getpass.getpass("Again: ") != password:
                raise CommandError("The two passwords differ. Nothing was made.")
        else:
            password = sys.stdin.readline().rstrip("\n")
        try:
            validate_password(password)
            user = user_create(
                username=options["username"],
                password=password,
                platform_role=options["platform_role"] or "",
                actor=Actor.system("command line"),
            )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except Problem as problem:
            raise CommandError(problem.detail) from problem
        self.stdout.write(f"User {user.username} is there now.")
