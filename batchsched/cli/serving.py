"""The server of `lab serve`, which serves a folder of results over HTTP to authorized readers."""

import asyncio
import ipaddress
import signal
import ssl
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import typer

from batchsched.observability.http.access import StaticTokenAccess, read_token
from batchsched.observability.http.results import LabResultHandlers
from batchsched.observability.http.server import (
    CertificateFiles,
    HttpServer,
    tls_context_from_files,
)


@dataclass(frozen=True, slots=True)
class ResultsServerOptions:
    """The address and port on which `lab serve` listens, with the files for access control and TLS.

    Args:
      address: the IP address to listen on.
      port: the port to listen on, 0 for any free port.
      token_file: contains the token of readers; None: all users of this machine may read.
      certificate: a certificate in PEM; None: plain HTTP on a loopback address, else a self-signed certificate.
      key: the private key of the certificate.
    """

    address: str
    port: int
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether the address is a loopback address, which only this machine can reach.

        Raises:
          BadParameter: the text is no IP address.
        """
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError as error:
            raise typer.BadParameter(
                f"--address {self.address!r} is not an IP address; expected an address such as 127.0.0.1, or "
                f"0.0.0.0 for all interfaces"
            ) from error

    def access_control(self) -> StaticTokenAccess:
        """Return the access control of the server: each request must contain the token from the token file.

        Without a token file, all users of this machine may read.

        Raises:
          BadParameter: other machines can reach the address, and there is no token.
          CommandError: the token file cannot be read.
        """
        if self.token_file is None and not self.is_loopback:
            raise typer.BadParameter(
                f"--address {self.address} can be reached from other machines; set the token that readers must send "
                "with --token-file FILE"
            )
        return StaticTokenAccess(None if self.token_file is None else read_token(self.token_file))

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the server, or None for plain HTTP on a loopback address.

        Raises:
          BadParameter: a certificate is given without its key, or a key without its certificate.
          CommandError: the certificate or the key cannot be used.
        """
        if (self.certificate is None) != (self.key is None):
            raise typer.BadParameter(
                "--tls-cert-file and --tls-private-key-file go together; set both or none"
            )
        if self.certificate is not None and self.key is not None:
            return tls_context_from_files(CertificateFiles(self.certificate, self.key))
        if self.is_loopback:
            return None
        from batchsched.observability.http.self_signed_certificate import self_signed_tls_context

        return self_signed_tls_context(self.address, time.time())


def serve_results_folder(folder: Path, options: ResultsServerOptions) -> None:
    """Serve a folder of the lab's results over HTTP until Ctrl-C or SIGTERM.

    Raises:
      InvalidInput: the folder contains no results.
      CommandError: another process uses the port, or the token or the certificate cannot be used.
    """
    guard, tls = options.access_control(), options.tls_context()
    from batchsched.lab.result_pages import ResultPages

    pages = ResultPages(folder)
    pages.runs_html()  # fails now if the folder is wrong, instead of at the first request
    asyncio.run(_serve(LabResultHandlers(pages), guard, options, tls))


async def _serve(
    results: LabResultHandlers,
    guard: StaticTokenAccess,
    options: ResultsServerOptions,
    tls: ssl.SSLContext | None,
) -> None:
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    server = HttpServer(guard, results.http_routes(), options.address, options.port, tls)
    await server.start()
    try:
        print(f"serving on {server.url}/ until Ctrl-C", file=sys.stderr, flush=True)
        await leave.wait()
    finally:
        await server.stop()
