"""Who is answered, and with which headers."""

import asyncio

import pytest

from unseam.explore.guard import Guard, is_loopback, refusal


@pytest.mark.parametrize("host", ["127.0.0.1:8050", "localhost:8050", "LOCALHOST", "[::1]:8050", "127.0.0.1"])
def test_this_machine_is_served(host):
    assert refusal(host, None, local=True) is None
    assert refusal(host, f"http://{host}", local=True) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8050",
        "127.0.0.1.evil.example",
        "192.168.0.7:8050",
        "",
        "[::1",
        "@",
        "user@127.0.0.1:8050",
        "127.0.0.1:80; script-src *",
        "127.0.0.1:8050, evil.example",
    ],
)
def test_other_names_are_refused(host):
    assert "127.0.0.1 and localhost only" in refusal(host, None, local=True)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:9999",
        "http://localhost:8050",
        "https://evil.example:8050",
        "http://[",
        "http://user@127.0.0.1:8050",
        "127.0.0.1:8050",
    ],
)
@pytest.mark.parametrize("local", [True, False])
def test_other_pages_are_refused_also_where_it_is_open(origin, local):
    assert "own page only" in refusal("127.0.0.1:8050", origin, local=local)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.5", "::1"])
def test_every_loopback_address_is_one(host):
    assert is_loopback(host)


def test_an_open_explorer_answers_to_any_name():
    assert refusal("lab.example:8050", "http://lab.example:8050", local=False) is None
    assert not is_loopback("0.0.0.0")


def call(guard, kind="http", headers=(), query=b""):
    """One connection through a guard; what it sent."""
    sent = []

    async def receive():
        return {"type": f"{kind}.connect"}

    async def send(message):
        sent.append(message)

    asyncio.run(guard({"type": kind, "headers": list(headers), "query_string": query}, receive, send))
    return sent


async def answer(scope, receive, send):
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"x-seen", repr(scope["headers"]).encode())],
        }
    )


def test_answers_carry_a_policy_that_keeps_the_page_here():
    (start,) = call(
        Guard(answer, local=True), headers=[(b"host", b"127.0.0.1:1"), (b"x-forwarded-prefix", b"/evil")]
    )
    headers = dict(start["headers"])
    policy = headers[b"content-security-policy"].decode()
    assert "default-src 'self'" in policy
    assert "connect-src 'self' ws://127.0.0.1:1;" in policy
    assert "http" not in policy
    assert b"evil" not in headers[b"x-seen"]


def test_strangers_get_403_and_their_sockets_are_closed():
    guard = Guard(answer, local=True)
    start, body = call(guard, headers=[(b"host", b"evil.example")])
    assert start["status"] == 403
    assert b"127.0.0.1 and localhost only" in body["body"]
    (closed,) = call(guard, "websocket", [(b"host", b"127.0.0.1"), (b"origin", b"http://evil.example")])
    assert (closed["type"], closed["code"]) == ("websocket.close", 1008)


def test_the_server_s_own_messages_pass():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    call(Guard(app, local=True), "lifespan")
    assert seen == ["lifespan"]


HOST = (b"host", b"lab.example:8050")


def test_a_link_with_its_token_is_let_in_and_remembered():
    (start,) = call(Guard(answer, local=False, token="right"), headers=[HOST], query=b"z=1&token=right")
    assert start["status"] == 200
    cookie = dict(start["headers"])[b"set-cookie"].decode()
    assert cookie == "unseam_token=right; Path=/; HttpOnly; SameSite=Strict"
    (again,) = call(
        Guard(answer, local=False, token="right"), headers=[HOST, (b"cookie", b"a=b; unseam_token=right")]
    )
    assert again["status"] == 200
    assert b"set-cookie" not in dict(again["headers"])


@pytest.mark.parametrize(
    "query", [b"", b"token=wrong", b"token=", b"token=right%20", b"token=wrong&token=right"]
)
@pytest.mark.parametrize("cookie", [b"", b"unseam_token=", b"unseam_token=wrong", b"other=right"])
def test_without_the_token_requests_and_sockets_are_refused(query, cookie):
    guard, headers = Guard(answer, local=False, token="right"), [HOST, (b"cookie", cookie)]
    start, body = call(guard, headers=headers, query=query)
    assert start["status"] == 403
    assert b"with its token" in body["body"]
    (closed,) = call(guard, "websocket", headers, query)
    assert (closed["type"], closed["code"]) == ("websocket.close", 1008)
