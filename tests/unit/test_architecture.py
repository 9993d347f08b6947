"""The import contracts hold, and each is proved by imports that must break it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("portal", "infra", "tenants", "billing", "simulator", "controlplane")

# contract → (module that is added, what it imports)
BAD_IMPORTS: dict[str, list[tuple[str, str]]] = {
    "Apps import one way": [
        ("portal.kernel.bad_accounts", "portal.accounts.models"),
        ("portal.accounts.bad_infra", "infra.models"),
        ("infra.bad_tenants", "tenants.models"),
        ("tenants.bad_billing", "billing.models"),
        ("billing.bad_auth", "portal.auth.views"),
        ("portal.auth.bad_cli", "portal.cli.instance"),
        ("portal.kernel.bad_settings", "portal.settings.base"),
    ],
    "Inside an app: views and reconcilers, services, selectors, models": [
        ("infra.models.bad_services", "infra.services"),
        ("tenants.selectors.bad_services", "tenants.services"),
        ("tenants.services.bad_reconcilers", "tenants.reconcilers"),
        ("portal.accounts.services.bad_api", "portal.accounts.api.views"),
    ],
    "The simulator imports nothing of ours": [("simulator.bad_kernel", "portal.kernel.clock")],
    "Nothing of ours imports the simulator or the control planes": [
        ("infra.bad_simulator", "simulator"),
        ("portal.cli.bad_planes", "controlplane"),
    ],
    "The control planes import nothing of ours": [("controlplane.bad_kernel", "portal.kernel.clock")],
    "The simulator does not know the control planes": [("simulator.bad_planes", "controlplane")],
    "Only infra.kube and infra.adapters speak to Kubernetes": [
        ("infra.services.bad_client", "kubernetes"),
        ("tenants.bad_client", "kubernetes"),
    ],
    "One door to tenants' rows": [("tenants.bad_scope", "django_scopes")],
    "Pure modules know no Django": [
        ("infra.placement.bad_django", "django.db"),
        ("infra.retroactive.bad_django", "django.db"),
        ("infra.shares.bad_django", "django.db"),
        ("billing.rating.bad_django", "django.db"),
        ("billing.metering.intervals.bad_django", "django.db"),
        ("portal.kernel.money.bad_django", "django.db"),
        ("portal.kernel.clock.bad_model", "portal.kernel.models"),
    ],
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--config", "pyproject.toml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.html"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def add_import(folder: Path, module: str, imported: str) -> str:
    """Add a module with one import; where the parent is a module and no package, its text gets the import."""
    parent = folder.joinpath(*module.split(".")[:-1])
    if parent.is_dir():
        (parent / f"{module.rpartition('.')[2]}.py").write_text(f"import {imported}\n")
        return module
    path = parent.with_suffix(".py")
    path.write_text(path.read_text() + f"\nimport {imported}\n")
    return module.rpartition(".")[0]


def test_the_contracts_hold() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout


def test_every_contract_is_proved_here(copy: Path) -> None:
    """All bad imports at once: each must be named below the heading of its contract."""
    added = {
        contract: [(add_import(copy, module, imported), imported) for module, imported in bad]
        for contract, bad in BAD_IMPORTS.items()
    }
    result = lint(copy)
    assert result.returncode == 1, result.stdout
    summary, _, details = result.stdout.partition("Broken contracts")
    assert summary.count(" BROKEN") == summary.count(" KEPT") + summary.count(" BROKEN") == len(BAD_IMPORTS), summary
    sections = {
        contract: details.split(f"{contract}\n{'-' * len(contract)}", 1)[1].split("\n---", 1)[0]
        for contract in BAD_IMPORTS
    }
    for contract, pairs in added.items():
        for module, _ in pairs:
            assert module in sections[contract], f"{contract} does not see {module}:\n{sections[contract]}"


def test_pure_modules_load_without_django() -> None:
    """What the contract can't see: an import at run time."""
    program = (
        "import sys\n"
        "import billing.metering.intervals, billing.rating, infra.placement, infra.shares\n"
        "import portal.kernel.clock, portal.kernel.money\n"
        "assert 'django' not in sys.modules, 'Django was imported'\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
