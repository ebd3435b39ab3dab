"""A certificate of our own has the names under which we may be asked; a stated one is read again when it changes."""

import asyncio
import datetime as dt
import socket
import ssl
import time

import pytest
from cryptography import x509

from batchsched.errors import CommandError
from batchsched.observability.http.self_signed_certificate import (
    self_signed_key_and_certificate,
    self_signed_tls_context,
)
from batchsched.observability.http.server import (
    CertificateFiles,
    reload_certificate_on_change,
    tls_context_from_files,
)
from tests.kube.virtual import Hurried


async def shown(context):
    """Return the certificate that a server with this context shows."""

    async def greet(reader, writer):
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    server.close()
    return x509.load_der_x509_certificate(found)


def issue(folder, name):
    """Write a key pair, and return its files."""
    pem = self_signed_key_and_certificate("127.0.0.1", dt.datetime.now(dt.UTC), name)
    pair = CertificateFiles(folder / "tls.crt", folder / "tls.key")
    pair.certificate.write_bytes(pem)
    pair.key.write_bytes(pem)
    return pair


async def test_self_signed_certificate_is_valid_for_a_year_and_the_names_of_the_host():
    now = time.time()
    found = await shown(self_signed_tls_context("0.0.0.0", now))
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert socket.gethostname() in names.get_values_for_type(x509.DNSName)
    assert "127.0.0.1" in [str(one) for one in names.get_values_for_type(x509.IPAddress)]
    assert (
        found.not_valid_before_utc.timestamp()
        < now
        < now + 360 * 86400
        < found.not_valid_after_utc.timestamp()
    )


async def test_a_rotated_certificate_is_shown_and_a_broken_one_is_not(tmp_path, caplog):
    pair = issue(tmp_path, "first")
    context = tls_context_from_files(pair)
    following = asyncio.create_task(reload_certificate_on_change(context, pair, Hurried(times=3000)))
    assert "first" in (await shown(context)).subject.rfc4514_string()
    await asyncio.sleep(0.05)
    issue(tmp_path, "second")
    await asyncio.sleep(0.1)
    assert "second" in (await shown(context)).subject.rfc4514_string()
    pair.certificate.write_text("no certificate")
    await asyncio.sleep(0.1)
    assert "second" in (await shown(context)).subject.rfc4514_string()
    assert "the old certificate stays" in caplog.text
    following.cancel()


def test_files_that_are_no_certificate_are_refused_by_name(tmp_path):
    with pytest.raises(CommandError, match=r"tls\.crt.*cannot be used for TLS"):
        tls_context_from_files(CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key"))
