"""Chromium without a window, as Debian packages it, for journeys through pages; and why there may be none."""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.support.waiting import PATIENCE_S, eventually

# The shell is the engine without the browser around it: half of a journey's processor time. The command of its package
# is a script that waits for it, which the driver would end in its place.
BROWSER = shutil.which("chromium-headless-shell", path="/usr/lib/chromium") or shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
MISSING = "" if BROWSER and DRIVER else "needs Chromium: apt-get install chromium-headless-shell chromium-driver"
WIDE, PHONE = (1200, 900), (390, 800)
# The interval between looks: reading the text of a page costs driver and browser 10 ms, in which the page stops.
PAUSE_S = 0.1
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """Let the driver's process end with the test process, even if that is killed; runs in the driver's process."""
    if sys.platform == "linux":
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def chromium(size: tuple[int, int], *arguments: str) -> Iterator[Chrome]:
    """A browser with a profile of its own, and with more arguments."""
    options = ChromeOptions()
    options.binary_location = BROWSER or ""
    if BROWSER and not BROWSER.endswith("headless-shell"):
        options.add_argument("--headless=new")
    for argument in (
        "--remote-debugging-pipe",  # the browser ends with its driver, which a port does not tell it
        "--no-sandbox",  # tests may run as root, where its sandbox refuses to
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--no-proxy-server",
        f"--window-size={size[0]},{size[1]}",
        *arguments,
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER, popen_kw={"preexec_fn": _end_with_parent}))
    try:
        driver.set_page_load_timeout(PATIENCE_S)
        yield driver
    finally:
        driver.quit()


def shows(driver: Chrome, text: str) -> bool:
    """Wait until a text is on the page."""

    def is_there() -> bool:
        try:
            return text in driver.find_element(By.TAG_NAME, "body").text
        except WebDriverException:
            return False  # the page is being replaced

    return eventually(
        is_there,
        lambda: f"the page shows {text!r}: {driver.find_element(By.TAG_NAME, 'body').text}",
        pause_s=PAUSE_S,
    )


def is_connected(driver: Chrome) -> None:
    """Wait until what is done on the page comes to the console."""
    eventually(lambda: driver.execute_script("return window.did_handshake === true"), "the page is connected")


def click(driver: Chrome, xpath: str) -> None:
    """Click what can be clicked by now."""

    def clicked() -> bool:
        try:
            found = [each for each in driver.find_elements(By.XPATH, xpath) if each.is_displayed()]
            if found:
                found[0].click()
            return bool(found)
        except WebDriverException:
            return False

    eventually(clicked, f"{xpath} can be clicked", pause_s=PAUSE_S)


def field(driver: Chrome, label: str) -> WebElement:
    """The input with this label."""

    def found() -> WebElement | None:
        try:
            elements = driver.find_elements(By.CSS_SELECTOR, f'input[aria-label="{label}"]')
            return next((each for each in elements if each.is_displayed()), None)
        except StaleElementReferenceException:
            return None

    return eventually(found, f"a field {label!r}", pause_s=PAUSE_S)


def errors(driver: Chrome) -> list[str]:
    """Errors of scripts, and refusals of the content policy; without sockets that a closed page has left."""
    entries: Any = driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium has no types here
    return [entry["message"] for entry in entries if re.search("Uncaught|Refused to", entry["message"])]
