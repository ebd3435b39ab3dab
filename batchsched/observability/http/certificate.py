"""The certificate that we show: the operator's, read again when its files change, or one that we sign ourselves."""

import asyncio
import datetime as dt
import ipaddress
import logging
import os
import socket
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from batchsched.errors import UnusableInput
from batchsched.ports.clock import Clock

_LOG: Final = logging.getLogger(__name__)
_YEAR: Final = dt.timedelta(days=365)
_LOOK: Final = 30.0
"""Seconds between two looks at the files."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Files with a certificate and its key, PEM."""

    certificate: Path
    key: Path

    def stamp(self) -> tuple[int, ...]:
        """Return what changes when they are rotated; nothing while one is not there."""
        try:
            return tuple(one.stat().st_mtime_ns for one in (self.certificate, self.key))
        except OSError:
            return ()


def own(address: str, now: float) -> ssl.SSLContext:
    """Return a context with a certificate of our own, for a year: whoever asks has to trust it unseen.

    Args:
      address: on which we listen.
      now: seconds since 1970.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # ssl reads files only, and the root of a container may be read-only: a file in memory where there are such.
    memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("certificate"), "wb") if memory else tempfile.NamedTemporaryFile() as file:
        file.write(signed(address, dt.datetime.fromtimestamp(now, dt.UTC), socket.gethostname()))
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}" if memory else file.name)
    return context


def stated(pair: KeyPair) -> ssl.SSLContext:
    """Return a context with the operator's certificate.

    Raises:
      UnusableInput: the files are not there, or do not fit together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, pair)
    return context


async def follow(context: ssl.SSLContext, pair: KeyPair, clock: Clock) -> None:
    """Read the files again whenever they change, until cancelled; a broken pair is told, and the old one stays."""
    seen = pair.stamp()
    while True:
        await clock.sleep(_LOOK)
        stamp = await asyncio.to_thread(pair.stamp)
        if not stamp or stamp == seen:
            continue
        seen = stamp
        try:
            _load(context, pair)
        except UnusableInput as error:
            _LOG.error("%s; the old certificate stays", error)
        else:
            _LOG.info("the certificate was rotated")


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    try:
        context.load_cert_chain(pair.certificate, pair.key)
    except (OSError, ssl.SSLError) as error:
        raise UnusableInput(f"{pair.certificate} and {pair.key} cannot be used for TLS: {error}") from error


def signed(address: str, now: dt.datetime, host: str) -> bytes:
    """Return key and certificate, PEM, for the names under which we may be asked."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{host}@{now.timestamp():.0f}"[:64])])
    names: list[x509.GeneralName] = [x509.DNSName(one) for one in dict.fromkeys((host, "localhost"))]
    names += [x509.IPAddress(ipaddress.ip_address(one)) for one in dict.fromkeys(("127.0.0.1", address))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + _YEAR)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
