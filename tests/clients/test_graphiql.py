"""The packaged GraphiQL page in a real browser."""

import asyncio
import itertools
import json
import shutil
from contextlib import asynccontextmanager

import websockets

from publishers import upsert
from tests.harness.missing import skip_without
from transports import serve

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DEADLINE = 120.0


class Tab:
    """A page of the browser, spoken to in its debugging protocol."""

    def __init__(self, socket):
        self.socket = socket
        self.numbers = itertools.count(1)
        self.complaints = []

    async def call(self, method, session=None, **parameters):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        await self.socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        async with asyncio.timeout(DEADLINE):
            while True:
                answer = json.loads(await self.socket.recv())
                if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                    self.complaints.append(answer["params"])
                if answer.get("id") == number:
                    return answer["result"]

    async def value(self, session, expression):
        answer = await self.call("Runtime.evaluate", session, expression=expression, awaitPromise=True)
        return answer["result"].get("value")

    async def true(self, session, expression):
        """Waits in the page until something is true."""
        wait = f"new Promise(done => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 20); look() }})"
        assert await self.value(session, wait) is True


@asynccontextmanager
async def browser(profile):
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    process = await asyncio.create_subprocess_exec(
        *command,
        f"--user-data-dir={profile}",
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            while not (line := (await process.stderr.readline()).decode()).startswith(
                "DevTools listening on "
            ):
                assert line, "the browser did not start"
        draining = asyncio.create_task(process.stderr.read())
        async with websockets.connect(line.split()[-1], proxy=None, max_size=None) as socket:
            yield Tab(socket)
        process.terminate()
        await draining
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()


async def subscribed(log):
    async with asyncio.timeout(DEADLINE):
        while True:
            if log.statistics().publishers:
                return
            await asyncio.sleep(0)


async def test_the_page_subscribes_and_shows_each_change(log, tmp_path):
    if CHROMIUM is None:
        skip_without("Chromium")
    with serve(log) as server:
        async with browser(tmp_path / "profile") as tab:
            target = (await tab.call("Target.createTarget", url="about:blank"))["targetId"]
            session = (await tab.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
            await tab.call("Runtime.enable", session)
            await tab.call("Log.enable", session)
            await tab.call("Page.navigate", session, url=server.graphql_url)
            await tab.true(session, "document.querySelector('.graphiql-execute-button')")
            await tab.true(session, "document.querySelector('.graphiql-query-editor .CodeMirror')")
            await tab.value(session, "document.querySelector('.graphiql-execute-button').click()")
            await subscribed(log)
            log.commit([upsert("order", "shown on the page", {"total": 1})])
            result = "document.querySelector('.result-window .CodeMirror')?.CodeMirror.getValue()"
            await tab.true(session, f"{result}?.includes('shown on the page')")
            # The schema was introspected, so the page could complete what is typed.
            await tab.value(
                session, "document.querySelector('[aria-label=\"Show Documentation Explorer\"]').click()"
            )
            await tab.true(
                session,
                "document.querySelector('.graphiql-doc-explorer')?.innerText.includes('Subscription')",
            )
            assert tab.complaints == []
