"""Creates self-signed serving certificates, for servers that have no certificate of their own.

The module is imported only where it is needed: importing `cryptography` takes a tenth of the start of a scheduler.
"""

import datetime as dt
import ipaddress
import os
import socket
import ssl
import tempfile
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALIDITY: Final = dt.timedelta(days=365)


def self_signed_tls_context(address: str, now: float) -> ssl.SSLContext:
    """Return a TLS context with a new self-signed certificate that is valid for one year.

    Clients cannot verify this certificate against a CA.

    Args:
      address: The address that the server listens on.
      now: Seconds since 1970.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # `ssl` loads certificates from files only, and the root file system of the container may be read-only.
    # So the file is kept in memory where the system supports that.
    memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("certificate"), "wb") if memory else tempfile.NamedTemporaryFile() as file:
        file.write(
            self_signed_key_and_certificate(
                address, dt.datetime.fromtimestamp(now, dt.UTC), socket.gethostname()
            )
        )
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}" if memory else file.name)
    return context


def self_signed_key_and_certificate(address: str, now: dt.datetime, host: str) -> bytes:
    """Return a new private key and a self-signed certificate as PEM.

    The certificate is valid for the host name, for localhost and for the address.
    """
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
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
