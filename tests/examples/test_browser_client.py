"""The pages of the browser example: one takes what it asks for, in order, and no more; the other shows what is there."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.browser.chromium import PROGRAM, chromium
from tests.harness.missing import skip_without

ROOT = Path(__file__).parent.parent.parent


def test_a_page_takes_three_orders_at_a_click_and_another_shows_those_that_are_open():
    if PROGRAM is None:
        skip_without("Chromium")
    command = [sys.executable, ROOT / "examples" / "browser_client.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as example:
        try:
            assert example.stdout is not None
            address, state = example.stdout.readline().strip(), example.stdout.readline().strip()
            with chromium() as browser, browser.tab() as tab:
                tab.open(address)
                for taken in (3, 6):
                    tab.run("document.querySelector('#more').click()")
                    tab.until(f"document.querySelectorAll('li').length === {taken}")
                shown = tab.run("[...document.querySelectorAll('li')].map(line => line.textContent)")
                assert shown == [f"order {n}: {n}.00" for n in range(1, 7)]
                tab.open(state)
                tab.until(
                    "document.body.dataset.ready === 'yes' && document.querySelectorAll('li').length >= 2"
                )
                tab.until("document.querySelector('#count').value === '10 open'")
                lines = tab.run("[...document.querySelectorAll('li')].map(line => line.textContent)")
                assert all(re.fullmatch(r"order (\d+): \1\.00", line) for line in lines)
                assert tab.complaints == []
        finally:
            example.send_signal(signal.SIGINT)
    assert example.returncode == 0
