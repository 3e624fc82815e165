"""Authorities and certificates for tests, made on the spot."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority, and what it has signed, as files in a folder."""

    def __init__(self, folder, name="ours"):
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._signed(
            self.name, self.key, timedelta(days=1), [(x509.BasicConstraints(True, None), True)]
        )
        self.path = self._write(f"{name}.ca.pem", made.public_bytes(serialization.Encoding.PEM))

    def _write(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def _signed(self, subject, key, ends, extensions):
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + ends)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, common_name, *, ends=timedelta(hours=1), names=("localhost",), file=None, password=None):
        """Paths of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Shop, Inc"),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        told = [x509.DNSName(name) for name in names] + [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = self._signed(
            subject,
            key,
            ends,
            [(x509.SubjectAlternativeName(told if "localhost" in names else told[:-1]), False)],
        )
        hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        file = file or common_name
        return (
            self._write(f"{file}.pem", made.public_bytes(serialization.Encoding.PEM)),
            self._write(
                f"{file}.key",
                key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden),
            ),
        )

    def trusting(self, *shown):
        """What a client connects with that trusts this authority, and shows a certificate."""
        context = ssl.create_default_context(cafile=self.path)
        if shown:
            context.load_cert_chain(*shown)
        return context
