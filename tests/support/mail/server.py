"""A mail server for tests: takes mail on localhost, writes each one to a folder.

usage: server.py FOLDER CERTIFICATE KEY starttls|tls|none
The file `port` in FOLDER says where it listens. The file `mood` there, if any, says what it does
with a mail: `busy` answers 451, `never` answers 550, `dies` takes it and closes the connection.
"""

import asyncio
import pathlib
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

folder, certificate, key, tls = sys.argv[1:]
folder = pathlib.Path(folder)
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(certificate, key)


class Handler:
    count = 0

    async def handle_DATA(self, server, session, envelope):
        mood = folder / "mood"
        mood = mood.read_text().strip() if mood.exists() else ""
        if mood == "busy":
            mood_file = folder / "mood"
            mood_file.unlink()
            return "451 try again later"
        if mood == "never":
            return "550 no thanks"
        Handler.count += 1
        (folder / f"mail-{Handler.count}").write_bytes(envelope.content)
        (folder / f"to-{Handler.count}").write_text(" ".join(envelope.rcpt_tos))
        if mood == "dies":
            server.transport.abort()
        return "250 taken"


def authenticate(server, session, envelope, mechanism, data):
    known = data.login == b"punctual" and data.password == b"zebra-mail-password"
    return AuthResult(success=known, handled=known)


def protocol():
    is_starttls = tls == "starttls"
    return SMTP(
        Handler(),
        hostname="localhost",
        tls_context=context if is_starttls else None,
        require_starttls=is_starttls,
        auth_required=tls != "none",
        auth_require_tls=is_starttls,
        authenticator=authenticate,
    )


async def main():
    loop = asyncio.get_running_loop()
    at_once = context if tls == "tls" else None
    server = await loop.create_server(protocol, "localhost", 0, ssl=at_once, family=2)
    port = server.sockets[0].getsockname()[1]
    (folder / "port.new").write_text(str(port))
    (folder / "port.new").rename(folder / "port")
    await server.serve_forever()


asyncio.run(main())
