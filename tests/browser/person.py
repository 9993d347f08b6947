"""Somebody with a browser: what they type and press, and what their browser complained about."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Response

from portal.kernel.money import THIN_SPACE
from tests.support.instance import wait_for


class Person:
    """A browser window of its own, with its own session.

    ``complaints`` holds what went wrong without anybody seeing it: errors on the console (violations of the content
    security policy are among them), uncaught exceptions, files that did not come.
    """

    def __init__(self, chromium: Browser, url: str, **options: object) -> None:
        self.url = url
        self.context = chromium.new_context(base_url=url, **options)  # type: ignore[arg-type]
        self.context.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"{self.page.url}: {error}"))
        self.page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{self.page.url}: {message.text}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.url} answered {response.status}")

    def sign_in(self, username: str, password: str) -> None:
        """By the form of the sign-in page."""
        self.go("/auth/login")
        local = self.page.get_by_text("Sign in with a local account")
        if local.count():  # beside an identity provider it is folded away
            local.click()
        self.page.get_by_label("User name").fill(username)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("button", name="Sign out").wait_for(state="attached")

    def go(self, path: str) -> Page:
        """Open a page that must be there."""
        response = self.page.goto(path)
        assert response is not None
        assert response.ok, f"{path} answered {response.status}: {self.text()[:2000]}"
        return self.page

    def send(self, form: Locator, values: Mapping[str, str | bool], button: str) -> None:
        """Fill fields in by their labels, press the button, and come to the next page without a refusal."""
        for label, value in values.items():
            field = form.get_by_label(label, exact=True)
            if isinstance(value, bool):
                field.set_checked(value)
            elif field.evaluate("element => element.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
        with self.page.expect_navigation() as navigation:
            form.get_by_role("button", name=button).click()
        assert navigation.value.ok, f"{button}: answered {navigation.value.status}: {self.text()[:3000]}"

    def text(self, selector: str = "main") -> str:
        """What can be read, with ordinary spaces."""
        return self.page.locator(selector).inner_text().replace(THIN_SPACE, " ").replace("\u00a0", " ")

    def reload_until(self, shown: Callable[[str], object], what: str) -> str:
        """Load the page again and again until its text is as expected; that text."""

        def look() -> str:
            self.page.reload()
            text = self.text()
            return text if shown(text) else ""

        try:
            answer: str = wait_for(look, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.page.url} says:\n{self.text()[:3000]}") from None
        return answer
