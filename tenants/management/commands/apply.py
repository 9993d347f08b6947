"""``manage.py apply -f FILE``: ModelDeployments of a file, as ``kubectl apply`` would."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.kernel.problems import Problem
from tenants.commanding import actor_named, tenant_named
from tenants.manifest import KIND, Document, ManifestInvalid, load_documents
from tenants.services.deployments import deployment_apply


class Command(BaseCommand):
    help = "Create or change ModelDeployments by their manifests (YAML or JSON; - reads from standard input)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("-f", "--filename", action="append", required=True, help="a file, or -")
        parser.add_argument("--tenant", help="slug of the tenant; else metadata.namespace names it")
        parser.add_argument("--as", dest="user", help="the user who asks; else the command line itself")
        parser.add_argument("--admit-now", action="store_true", help="refuse what would have to wait for a place")
        parser.add_argument("--dry-run", action="store_true", help="check and show, store nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        refused = 0
        for filename in options["filename"]:
            for document in _documents(filename):
                try:
                    self._apply(document, options)
                except (Problem, CommandError) as error:
                    refused += 1
                    self._refuse(filename, document, error)
        if refused:
            raise CommandError(f"{refused} of the documents were refused; nothing of those was stored.")

    def _apply(self, document: Document, options: dict[str, Any]) -> None:
        data = document.data if isinstance(document.data, dict) else {}
        if data.get("kind") not in (KIND, None):
            raise CommandError(f"only {KIND} can be applied here, not {data.get('kind')}")
        slug = options["tenant"] or (data.get("metadata") or {}).get("namespace")
        actor = actor_named(options["user"])
        applied = deployment_apply(
            tenant=tenant_named(str(slug) if slug else ""),
            manifest=document,
            actor=actor,
            admit_now=options["admit_now"],
            dry_run=options["dry_run"],
        )
        self.stdout.write(applied.message + (" (dry run)" if options["dry_run"] else ""))
        if applied.preview is not None:
            self.stdout.write(f"  {applied.preview.summary}")
            for line in applied.preview.quota:
                self.stdout.write(f"  {line.sentence}")
            for refusal in applied.preview.not_chosen:
                where = f"{refusal.cluster}/{refusal.pool}" if refusal.pool else refusal.cluster
                self.stdout.write(f"  not {where}: {refusal.sentence}")

    def _refuse(self, filename: str, document: Document, error: Exception) -> None:
        name = (document.data.get("metadata") or {}).get("name", "?") if isinstance(document.data, dict) else "?"
        self.stderr.write(f"{filename}: {name}: {error}")
        for fault in getattr(error, "errors", ()):
            line = f"line {fault['line']}: " if "line" in fault else ""
            self.stderr.write(f"  {line}{fault['pointer'] or '/'}: {fault['detail']}")


def _documents(filename: str) -> list[Document]:
    try:
        text = sys.stdin.read() if filename == "-" else Path(filename).read_text(encoding="utf-8")
        return load_documents(text)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{filename} can't be read: {error}") from error
    except ManifestInvalid as error:
        raise CommandError(f"{filename}: {error}") from error
