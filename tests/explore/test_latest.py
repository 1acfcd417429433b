"""Only the newest request counts, none starves, and an error does not stop the rest."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from unseam.explore.latest import Latest


def run(scenario):
    with ThreadPoolExecutor(1) as executor:
        return asyncio.run(scenario(executor))


def test_a_thousand_requests_cost_two():
    async def scenario(executor):
        shown, gate = [], threading.Event()
        latest = Latest(executor, failed=shown.append)
        latest.ask(lambda: gate.wait(5) and 0, shown.append)
        await asyncio.sleep(0.05)
        for k in range(1, 1001):
            latest.ask(lambda k=k: k, shown.append)
        gate.set()
        await latest.idle()
        return shown, latest.computed

    assert run(scenario) == ([0, 1000], 2)


def test_results_are_shown_while_requests_keep_coming():
    async def scenario(executor):
        shown = []
        latest = Latest(executor, failed=shown.append)
        for k in range(20):
            latest.ask(lambda k=k: k, shown.append)
            await asyncio.sleep(0.01)
        await latest.idle()
        return shown

    shown = run(scenario)
    assert shown[-1] == 19
    assert len(shown) > 5
    assert shown == sorted(shown)


def test_an_error_is_told_and_the_next_request_is_answered():
    async def scenario(executor):
        shown, errors = [], []
        latest = Latest(executor, failed=errors.append)
        latest.ask(lambda: 1 / 0, shown.append)
        await latest.idle()
        latest.ask(lambda: 2, shown.append)
        await latest.idle()
        return shown, [type(error) for error in errors]

    assert run(scenario) == ([2], [ZeroDivisionError])


def test_what_is_closed_shows_nothing():
    async def scenario(executor):
        shown, gate = [], threading.Event()
        latest = Latest(executor, failed=shown.append)
        latest.ask(lambda: gate.wait(5), shown.append)
        await asyncio.sleep(0.05)
        latest.close()
        gate.set()
        await asyncio.sleep(0.05)
        return shown

    assert run(scenario) == []
