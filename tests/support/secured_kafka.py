"""Listeners of brokers with TLS and a login, and the settings of clients that they admit."""

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from shardpost.embedded import broker, daemons
from shardpost.settings import Settings, load
from tests.conftest import environ
from tests.support.certificates import Authority
from tests.support.installed import installed

USER, PASSWORD = "somebody", 'p"ss\\word; $HOME #1'
LISTENERS = ("SASL_SSL", "SSL", "SASL_PLAINTEXT")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
# Kafka's own for trials: it takes tokens that nobody has signed.
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PROPERTIES = f"""\
ssl.keystore.type=PEM
ssl.keystore.location={{both}}
ssl.truststore.type=PEM
ssl.truststore.location={{authority}}
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={SCRAM} required;
listener.name.ssl.ssl.client.auth=required
listener.name.sasl_plaintext.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={BEARER} required;
"""


@dataclass(frozen=True)
class SecuredKafka:
    """An authority, whose certificates brokers and clients have; in a folder without spaces."""

    authority: Authority

    def properties(self, plain: str, address: str, ports: Mapping[str, int]) -> str:
        """Return a broker's properties with both listeners at that address besides its own."""
        more = "".join(f",{name}://{address}:{port}" for name, port in ports.items())
        lines = []
        for line in plain.splitlines():
            if line.startswith(("listeners=", "advertised.listeners=")):
                lines.append(line + more)
            elif line.startswith("listener.security.protocol.map="):
                lines.append(line + "".join(f",{name}:{name}" for name in ports))
            else:
                lines.append(line)
        issued = self.authority.issue(f"broker-{address}", address)
        paths = {"both": issued.both, "authority": self.authority.certificate}
        return "\n".join([*lines, PROPERTIES.format(**paths)])

    def login(self) -> dict[str, object]:
        """Return settings with TLS and a login, as `tests.conftest.environ` takes them."""
        return {
            "kafka__security_protocol": "SASL_SSL",
            "kafka__sasl_mechanisms": "SCRAM-SHA-512",
            "kafka__sasl_username": USER,
            "kafka__sasl_password": PASSWORD,
            "kafka__ssl_ca_location": self.authority.certificate,
        }

    def certificate(self) -> dict[str, object]:
        """Return settings by which both sides show a certificate."""
        mine = self.authority.issue("client")
        return {
            "kafka__security_protocol": "SSL",
            "kafka__ssl_ca_location": self.authority.certificate,
            "kafka__ssl_certificate_location": mine.certificate,
            "kafka__ssl_key_location": mine.key,
        }

    def token(self) -> dict[str, object]:
        """Return settings of a login by tokens, which each side gets in its own way."""
        subject = f'unsecuredLoginStringClaim_sub="{USER}"'
        return {
            "kafka__security_protocol": "SASL_PLAINTEXT",
            "kafka__sasl_mechanisms": "OAUTHBEARER",
            "kafka__oauth_cb": f"{unsigned_token.__module__}.{unsigned_token.__name__}",
            "kafka__java_sasl_jaas_config": f"{BEARER} required {subject};",
        }

    def texts(self) -> dict[str, object]:
        """Return the same settings with the text of each file."""
        mine = self.authority.issue("client")
        return {
            "kafka__security_protocol": "SSL",
            "kafka__ssl_ca_pem": self.authority.certificate.read_text(),
            "kafka__ssl_certificate_pem": mine.certificate.read_text(),
            "kafka__ssl_key_pem": mine.key.read_text(),
        }


def unsigned_token(_config: str) -> tuple[str, float]:
    """Return a token that the trial login takes, and when it is over: `oauth_cb` of a client."""
    now = time.time()
    parts = {"alg": "none"}, {"sub": USER, "iat": now, "exp": now + 3600}
    texts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return f"{'.'.join(text.rstrip('=') for text in texts)}.", now + 3600


def add_user(plain: Settings) -> None:
    """Have the brokers know the user; one that has just started may have to be asked again."""
    client = AdminClient({"bootstrap.servers": plain.bootstrap})
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
    installed(plain).kafka.with_leaders(
        lambda: client.alter_user_scram_credentials([change])[USER].result(60)
    )


@dataclass(frozen=True)
class SecuredBroker:
    """One broker: its settings without TLS, its ports by their protocols."""

    plain: Settings
    ports: Mapping[str, int]
    kafka: SecuredKafka

    def settings(self, client: Mapping[str, object], host: str = "127.0.0.1") -> dict[str, str]:
        """Return variables of a client that is so configured, at the listener of its protocol."""
        port = self.ports[str(client["kafka__security_protocol"])]
        servers = {"home": self.plain.home, "bootstrap_servers": f"{host}:{port}"}
        return environ(partitions=2, kafka_timeout=30, **servers, **client)

    def load(self, client: Mapping[str, object]) -> Settings:
        """Return the settings of a client that is so configured."""
        return load(self.settings(client))


@contextmanager
def secured_broker(home: Path) -> Iterator[SecuredBroker]:
    """Run a broker that nobody else uses, with TLS and logins."""
    folder = home / "certificates"
    folder.mkdir(parents=True)
    kafka, usual = SecuredKafka(Authority(folder)), broker.PROPERTIES
    ports = {name: daemons.choose_port() for name in LISTENERS}
    plain = load(environ(home=home / "home", kafka_port=daemons.choose_port(), kafka_timeout=30))
    broker.PROPERTIES = kafka.properties(usual, "127.0.0.1", ports)
    try:
        broker.start(plain)
        add_user(plain)
        yield SecuredBroker(plain, ports, kafka)
    finally:
        broker.PROPERTIES = usual
        broker.stop(plain)
