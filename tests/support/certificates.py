"""Certificates that are made on the spot: an authority, and what it vouches for."""

import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID


def _new_key() -> EllipticCurvePrivateKey:
    return generate_private_key(SECP256R1())


@dataclass(frozen=True)
class Issued:
    """Files in PEM: a certificate, its key in PKCS #8, and both in one."""

    certificate: Path
    key: Path
    both: Path

    def key_store(self, password: str) -> Path:
        """Make a file in PKCS #12, as Java's servers take it."""
        path, both = self.both.with_suffix(".p12"), self.both.read_bytes()
        key = serialization.load_pem_private_key(both, None)
        assert isinstance(key, EllipticCurvePrivateKey)
        found = x509.load_pem_x509_certificate(both)
        secret = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(serialize_key_and_certificates(b"1", key, found, None, secret))
        return path


@dataclass(frozen=True)
class Authority:
    """Who vouches for certificates: its own is `certificate`, a file in PEM."""

    folder: Path
    name: str = "authority"
    _key: EllipticCurvePrivateKey = field(default_factory=_new_key, repr=False)

    @property
    def certificate(self) -> Path:
        """The file that clients trust."""
        path = self.folder / f"{self.name}.pem"
        if not path.exists():
            made = self._signed(self._key, self.name).add_extension(
                x509.BasicConstraints(ca=True, path_length=None), critical=True
            )
            path.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        return path

    def trust_store(self, password: str) -> Path:
        """Make a file by which a JVM trusts this authority, and no other."""
        path = self.folder / f"{self.name}.trust.p12"
        if not path.exists():
            tool = ["keytool", "-importcert", "-noprompt", "-alias", self.name]
            given = ["-file", self.certificate, "-keystore", path, "-storepass", password]
            command = [*tool, *map(str, given), "-storetype", "PKCS12"]
            subprocess.run(command, check=True, capture_output=True)
        return path

    def issue(self, name: str, *addresses: str) -> Issued:
        """Make a certificate of that name, for hosts of these names or IP addresses."""
        key = _new_key()
        made = self._signed(key, name)
        if addresses:
            names = x509.SubjectAlternativeName([_general(address) for address in addresses])
            made = made.add_extension(names, critical=False)
        certificate = _pem(made.sign(self._key, hashes.SHA256()))
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        found = Issued(*(self.folder / f"{name}.{kind}" for kind in ("pem", "key", "both.pem")))
        found.certificate.write_bytes(certificate)
        found.key.write_bytes(private)
        found.both.write_bytes(private + certificate)
        return found

    def _signed(self, key: EllipticCurvePrivateKey, name: str) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder(
                _named(self.name), _named(name), key.public_key(), x509.random_serial_number()
            )
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(address: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ip_address(address))
    return x509.DNSName(address)


def _pem(made: x509.Certificate) -> bytes:
    return made.public_bytes(serialization.Encoding.PEM)
