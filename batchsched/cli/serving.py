"""The server of `lab serve`: a folder of results, to whoever may see it."""

import asyncio
import ipaddress
import signal
import ssl
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import typer

from batchsched.cli.laboratory import need_parquet
from batchsched.observability.http.bearer import Bearer, read_token
from batchsched.observability.http.certificate import KeyPair, operator_context, self_signed_context
from batchsched.observability.http.results import ResultHandlers
from batchsched.observability.http.server import Server


@dataclass(frozen=True, slots=True)
class ResultsAddress:
    """The address on which results are served, and its access control.

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
    def here(self) -> bool:
        """Whether only this machine reaches it.

        Raises:
          BadParameter: the address is none.
        """
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError as error:
            raise typer.BadParameter(
                f"--address {self.address!r} is no IP address; expected one such as 127.0.0.1, or 0.0.0.0 for all"
            ) from error

    def guard(self) -> Bearer:
        """Return who lets readers in.

        Raises:
          BadParameter: the address is reached from elsewhere, and there is no token.
          UnusableInput: the token cannot be read.
        """
        if self.token_file is None and not self.here:
            raise typer.BadParameter(
                f"--address {self.address} is reached from other machines: state the token that readers "
                "have to show, --token-file FILE"
            )
        return Bearer(None if self.token_file is None else read_token(self.token_file))

    def tls(self) -> ssl.SSLContext | None:
        """Return the certificate to show: a token is not to be read on its way through a network.

        Raises:
          BadParameter: a certificate without its key, or the other way round.
          UnusableInput: they cannot be used.
        """
        if (self.certificate is None) != (self.key is None):
            raise typer.BadParameter("--tls-cert-file and --tls-private-key-file go together")
        if self.certificate is not None and self.key is not None:
            return operator_context(KeyPair(self.certificate, self.key))
        return None if self.here else self_signed_context(self.address, time.time())


def serve(folder: Path, address: ResultsAddress) -> None:
    """Serve a folder of results until Ctrl-C or SIGTERM.

    Raises:
      InvalidInput: there are no results in it.
      UnusableInput: the port is somebody else's, or the token or certificate cannot be used.
    """
    guard, tls = address.guard(), address.tls()
    need_parquet()
    from batchsched.lab.exhibit import ResultPages

    exhibit = ResultPages(folder)
    exhibit.runs()  # whoever serves a wrong folder is told so now, and not by the first reader
    asyncio.run(_serve(ResultHandlers(exhibit), guard, address, tls))


async def _serve(
    results: ResultHandlers, guard: Bearer, address: ResultsAddress, tls: ssl.SSLContext | None
) -> None:
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    server = Server(guard, results.routes(), address.address, address.port, tls)
    await server.start()
    try:
        print(f"serving on {server.url}/ until Ctrl-C", file=sys.stderr, flush=True)
        await leave.wait()
    finally:
        await server.stop()
