from pathlib import Path
from tests.support.instance import running_portal, wait_for
from tests.support.simulator import simulator
import time

def test_start(clone, tmp_path, chromium):
    t=time.monotonic()
    with simulator(tmp_path/"sim", fleet=Path("tests/browser/fleet.yaml")) as sim:
        print("sim", time.monotonic()-t)
        with running_portal(clone, sim) as portal:
            print("prepared", time.monotonic()-t)
            portal.manage("createsuperuser","--noinput","--username","platform-admin", DJANGO_SUPERUSER_PASSWORD="correct horse battery")
            print("user", time.monotonic()-t)
            portal.start()
            print("start", time.monotonic()-t)
            page = chromium.new_context(base_url=portal.url).new_page()
            page.on("console", lambda m: print("console", m.text))
            page.goto("/auth/login"); print(page.title(), time.monotonic()-t)
            portal.restart()
            print("restart", time.monotonic()-t)
            print(portal.log())
        print("end", time.monotonic()-t)
