"""A Keycloak of our own, for the demonstration and the tests: fetched once, built once, started as a child. No Django.

The distribution is the Maven artifact ``org.keycloak:keycloak-quarkus-dist`` (zip), fetched by ``mvn`` into the user's
cache folder, unpacked and built (``kc.sh build``) there. It keeps its data in memory: a start makes the realm anew
(:mod:`portal.cli.keycloak_realm`), with the same ids.

Java is started directly, with the options that ``bin/kc.sh`` gives it: the script in between would outlive a parent
that was killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VERSION = "26.4.7"
LEAST_JAVA = 17
_ARTIFACT = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
_BUILD = ["--db=dev-mem", "--health-enabled=true", "--metrics-enabled=false"]
_THREADS = "io.quarkus.bootstrap.forkjoin.QuarkusForkJoinWorkerThreadFactory"
_JAVA = [
    "-XX:MetaspaceSize=96M", "-XX:MaxMetaspaceSize=256m", "-Xms64m", "-Xmx512m", "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError", "-Dfile.encoding=UTF-8",
    "-Djava.security.egd=file:/dev/urandom", "-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
    "-Dpicocli.disable.closures=true", "-Dquarkus-log-max-startup-records=10000",
    f"-Djava.util.concurrent.ForkJoinPool.common.threadFactory={_THREADS}",
    "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.security=ALL-UNNAMED", "-Duser.language=en", "-Duser.country=US",
]  # fmt: skip
"""What ``bin/kc.sh`` sets, with a compiler and a collector that start sooner and take less memory."""


class KeycloakError(RuntimeError):
    """Keycloak can't be had or started; the message says why and what to do."""


def cache_folder() -> Path:
    """Where the distribution is kept, for every checkout of this user."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ai-factory-portal" / "keycloak" / VERSION


def missing() -> str:
    """What this machine lacks for a Keycloak of our own, as a sentence; empty: nothing."""
    java = shutil.which("java")
    if java is None:
        return f"Java {LEAST_JAVA} or newer is missing (Debian: default-jre-headless)."
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < LEAST_JAVA:
        return f"Keycloak needs Java {LEAST_JAVA} or newer; `java -version` says: {told.splitlines()[:1]}."
    if not _built(cache_folder()) and shutil.which("mvn") is None:
        return "Maven is missing (Debian: maven); it fetches Keycloak."
    return ""


def distribution() -> Path:
    """The folder of the unpacked and built distribution; fetches and builds it the first time (a minute or two).

    Raises:
        KeycloakError: something is missing, or a step failed; with what the step said.
    """
    if reason := missing():
        raise KeycloakError(reason)
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _built(folder):
            _fetch(folder)
    return folder / "keycloak"


def _built(folder: Path) -> bool:
    return (folder / "keycloak" / ".built").exists()


def _fetch(folder: Path) -> None:
    fetched = folder / "fetched"
    _step(["mvn", "-q", "-B", _PLUGIN, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={fetched}"], "fetching Keycloak")
    unpacked = folder / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    archives = list(fetched.glob("*.zip"))
    if len(archives) != 1:
        raise KeycloakError(f"Fetching Keycloak left {len(archives)} archives in {fetched}; expected one.")
    with zipfile.ZipFile(archives[0]) as archive:
        archive.extractall(unpacked)  # an artifact whose checksum Maven has compared
    (home,) = unpacked.iterdir()
    _step(["sh", str(home / "bin" / "kc.sh"), "build", *_BUILD], "building Keycloak")
    (home / ".built").touch()
    shutil.rmtree(folder / "keycloak", ignore_errors=True)
    home.rename(folder / "keycloak")
    shutil.rmtree(unpacked, ignore_errors=True)
    shutil.rmtree(fetched, ignore_errors=True)


def _step(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode != 0:
        raise KeycloakError(f"{what} failed:\n{(done.stdout + done.stderr).strip()[-2000:]}")


@dataclass(frozen=True)
class Listener:
    """A TLS listener beside the plain one: API servers take tokens of https issuers only. The files are PEM."""

    port: int
    certificate: Path
    key: Path


@dataclass(frozen=True)
class KeycloakServer:
    """How one server is started: on loopback, over plain HTTP (and TLS, if asked), with its data in memory."""

    port: int
    management_port: int
    admin_password: str
    tls: Listener | None = None

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        """Its address over TLS, for realms with this ``frontendUrl``; empty where it does not listen there."""
        return f"https://127.0.0.1:{self.tls.port}" if self.tls else ""

    @property
    def ready_url(self) -> str:
        """Answers 200 when it is ready."""
        return f"http://127.0.0.1:{self.management_port}/health/ready"

    def command(self, home: Path) -> list[str]:
        """The command line; ``home``: see :func:`distribution`."""
        return [
            shutil.which("java") or "java", *_JAVA,
            f"-Dkc.home.dir={home}", f"-Djboss.server.config.dir={home / 'conf'}",
            "-cp", str(home / "lib" / "quarkus-run.jar"), "io.quarkus.bootstrap.runner.QuarkusEntryPoint",
            "start", "--optimized", "--http-enabled=true", "--http-host=127.0.0.1", f"--http-port={self.port}",
            f"--http-management-port={self.management_port}", f"--hostname={self.url}", "--cache=local",
            "--log-level=WARN", *self._tls_options(),
        ]  # fmt: skip

    def _tls_options(self) -> list[str]:
        if self.tls is None:
            return []
        return [
            f"--https-port={self.tls.port}", f"--https-certificate-file={self.tls.certificate}",
            f"--https-certificate-key-file={self.tls.key}",
            "--http-management-scheme=http",  # else its health page would be there over TLS alone
        ]  # fmt: skip

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Its environment: nothing of ours, and the password of its first administrator (``admin``)."""
        kept = {name: inherited[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR") if name in inherited}
        return kept | {"KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": self.admin_password}
